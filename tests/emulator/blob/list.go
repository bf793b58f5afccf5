package blob

import (
	"encoding/base64"
	"encoding/xml"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/state"
)

// maxResults is the largest page of a listing, and the default one [list-blobs].
const maxResults = 5000

// metaXML writes metadata as elements named by their keys.
type metaXML map[string]string

func (m metaXML) MarshalXML(e *xml.Encoder, start xml.StartElement) error {
	if err := e.EncodeToken(start); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if err := e.EncodeElement(m[name], xml.StartElement{Name: xml.Name{Local: name}}); err != nil {
			return err
		}
	}
	return e.EncodeToken(start.End())
}

type propertiesXML struct {
	CreationTime  string `xml:"Creation-Time,omitempty"`
	LastModified  string `xml:"Last-Modified"`
	ETag          string `xml:"Etag"`
	ContentLength *int   `xml:"Content-Length"`
	ContentType   string `xml:"Content-Type,omitempty"`
	ContentMD5    string `xml:"Content-MD5,omitempty"`
	BlobType      string `xml:",omitempty"`
	LeaseStatus   string
	LeaseState    string
	LeaseDuration string `xml:",omitempty"`
	// of blobs
	AccessTier         string `xml:",omitempty"`
	AccessTierInferred bool   `xml:",omitempty"`
	// of containers
	DefaultEncryptionScope string `xml:",omitempty"`
}

type itemXML struct {
	Name       string
	Properties propertiesXML
	Metadata   metaXML `xml:",omitempty"`
}

type prefixXML struct{ Name string }

type listXML struct {
	XMLName         xml.Name `xml:"EnumerationResults"`
	ServiceEndpoint string   `xml:",attr"`
	ContainerName   string   `xml:",attr,omitempty"`
	Prefix          string   `xml:",omitempty"`
	Marker          string   `xml:",omitempty"`
	MaxResults      int
	Delimiter       string        `xml:",omitempty"`
	Containers      *containersIn `xml:",omitempty"`
	Blobs           *blobsIn      `xml:",omitempty"`
	NextMarker      string
}

type containersIn struct {
	Container []itemXML
}

type blobsIn struct {
	Blob       []itemXML
	BlobPrefix []prefixXML
}

// listing reads what the two list operations have in common.
func (r *request) listing() (list listXML, limit int, withMeta bool, err error) {
	limit = maxResults
	if text := r.query.Get("maxresults"); text != "" {
		limit, err = strconv.Atoi(text)
		if err != nil || limit < 1 {
			return list, 0, false, state.NewError(http.StatusBadRequest, "OutOfRangeQueryParameterValue", "maxresults must be a whole number above 0.")
		}
		limit = min(limit, maxResults)
	}
	for include := range strings.SplitSeq(r.query.Get("include"), ",") {
		switch include {
		case "":
		case "metadata":
			withMeta = true
		default:
			return list, 0, false, unsupportedText("include=" + include + " of listings")
		}
	}
	list = listXML{
		ServiceEndpoint: "http://" + r.Host + "/", Prefix: r.query.Get("prefix"), Marker: r.query.Get("marker"),
		MaxResults: limit, Delimiter: r.query.Get("delimiter"),
	}
	return list, limit, withMeta, nil
}

func (s *Server) listContainers(r *request) error {
	list, limit, withMeta, err := r.listing()
	if err != nil {
		return err
	}
	page, next := s.account.ListContainers(list.Prefix, list.Marker, limit)
	in := &containersIn{}
	for _, info := range page {
		item := itemXML{Name: info.Name, Properties: propertiesXML{
			LastModified: info.LastModified.Format(http.TimeFormat), ETag: info.ETag,
			LeaseStatus: "unlocked", LeaseState: string(state.Available), DefaultEncryptionScope: encryptionScope,
		}}
		if withMeta {
			item.Metadata = info.Meta
		}
		in.Container = append(in.Container, item)
	}
	list.Containers, list.NextMarker = in, next
	writeXML(r.w, http.StatusOK, list)
	return nil
}

func (s *Server) listBlobs(r *request) error {
	list, limit, withMeta, err := r.listing()
	if err != nil {
		return err
	}
	page, next, err := s.account.ListBlobs(r.container, list.Prefix, list.Delimiter, list.Marker, limit)
	if err != nil {
		return err
	}
	in := &blobsIn{}
	for _, entry := range page {
		if entry.Prefix {
			in.BlobPrefix = append(in.BlobPrefix, prefixXML{entry.Name})
			continue
		}
		b := entry.Blob
		item := itemXML{Name: entry.Name, Properties: propertiesXML{
			CreationTime: b.Created.UTC().Format(http.TimeFormat), LastModified: b.LastModified.Format(http.TimeFormat),
			ETag: b.ETag, ContentLength: &b.Size, ContentType: b.ContentType,
			ContentMD5: base64.StdEncoding.EncodeToString(b.ContentMD5), BlobType: "BlockBlob", LeaseState: string(b.LeaseState),
			AccessTier: accessTier, AccessTierInferred: true,
		}}
		item.Properties.LeaseStatus, item.Properties.LeaseDuration = leaseText(b)
		if withMeta {
			item.Metadata = b.Meta
		}
		in.Blob = append(in.Blob, item)
	}
	list.ContainerName, list.Blobs, list.NextMarker = r.container, in, next
	writeXML(r.w, http.StatusOK, list)
	return nil
}
