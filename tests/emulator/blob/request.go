package blob

import (
	"bytes"
	"crypto/md5" // the protocol's checksum, no secret hangs on it
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/state"
)

// request is a request with its address taken apart.
type request struct {
	*http.Request
	w         http.ResponseWriter
	level     string // service, container or blob
	container string
	blob      string
	query     url.Values
	maxBody   int64
	signed    bool // by a shared access signature
}

func badHeader(name, why string) error {
	return state.NewError(http.StatusBadRequest, "InvalidHeaderValue", "The header "+name+" "+why+".")
}

// path returns the path of the request below the account, which is the first part of the path, or
// of the host name (account.blob.…).
func (s *Server) path(r *http.Request) string {
	path := strings.TrimPrefix(r.URL.Path, "/")
	if !s.byHost(r) {
		_, path, _ = strings.Cut(path, "/")
	}
	return path
}

func (s *Server) byHost(r *http.Request) bool { return strings.HasPrefix(r.Host, s.opts.Account+".") }

// parse reads what the request is about. A request that is signed by a shared access signature may
// leave out its version.
func (s *Server) parse(w http.ResponseWriter, r *http.Request, signed bool) (*request, error) {
	req := &request{Request: r, w: w, query: r.URL.Query(), maxBody: s.opts.MaxBody, signed: signed}
	if r.Header.Get("x-ms-version") == "" && !signed {
		return nil, state.NewError(http.StatusBadRequest, "MissingRequiredHeader", "The header x-ms-version is missing.")
	}
	if account, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/"); !s.byHost(r) && account != s.opts.Account {
		return nil, state.NewError(http.StatusNotFound, "ResourceNotFound", "The account "+strconv.Quote(account)+" does not exist here.")
	}
	req.container, req.blob, _ = strings.Cut(s.path(r), "/")
	switch {
	case req.container == "":
		req.level = "service"
	case req.blob == "":
		req.level = "container"
		if req.query.Get("restype") != "container" {
			if req.query.Get("restype") == "account" {
				return nil, unsupportedText(account)
			}
			return nil, unsupportedText("blobs of the root container: " + r.Method + " without restype=container")
		}
		if n := len(req.container); n < 3 || n > 63 {
			return nil, state.NewError(http.StatusBadRequest, "OutOfRangeInput", "One of the request inputs is out of range: the container name "+strconv.Quote(req.container)+".")
		}
		if !validContainerName(req.container) {
			return nil, state.NewError(http.StatusBadRequest, "InvalidResourceName", "The container name "+strconv.Quote(req.container)+" is invalid.")
		}
	default:
		req.level = "blob"
	}
	return req, nil
}

// validContainerName reports whether the name is of lower case letters, digits and single hyphens
// that stand between others, or $root [naming-containers].
func validContainerName(name string) bool {
	if name == "$root" {
		return true
	}
	if strings.Contains(name, "--") || name[0] == '-' || name[len(name)-1] == '-' {
		return false
	}
	for _, c := range name {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

// body reads the request's body and verifies its Content-MD5.
func (r *request) body() ([]byte, error) {
	if r.ContentLength < 0 {
		return nil, state.NewError(http.StatusLengthRequired, "MissingContentLengthHeader", "The header Content-Length is missing.")
	}
	tooLarge := state.NewError(http.StatusRequestEntityTooLarge, "RequestBodyTooLarge", "The request body is larger than this server takes.")
	if r.ContentLength > r.maxBody {
		return nil, tooLarge
	}
	data, err := io.ReadAll(http.MaxBytesReader(r.w, r.Body, r.maxBody))
	if err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return nil, tooLarge
		}
		return nil, state.NewError(http.StatusBadRequest, "InvalidInput", "The request body could not be read.")
	}
	want, err := r.md5("Content-MD5")
	if err != nil {
		return nil, err
	}
	return data, checkMD5(want, data)
}

func checkMD5(want, data []byte) error {
	if sum := md5.Sum(data); want != nil && !bytes.Equal(want, sum[:]) {
		return state.NewError(http.StatusBadRequest, "Md5Mismatch", "The MD5 value specified in the request did not match with the MD5 value calculated by the server.")
	}
	return nil
}

// md5 decodes an MD5 header; nil when it is absent.
func (r *request) md5(name string) ([]byte, error) {
	text := r.Header.Get(name)
	if text == "" {
		return nil, nil // an absent header is allowed
	}
	sum, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(sum) != md5.Size {
		return nil, state.NewError(http.StatusBadRequest, "InvalidMd5", "The MD5 value specified in the header "+name+" is invalid.")
	}
	return sum, nil
}

// conditions reads the conditional headers and the lease id.
func (r *request) conditions() (state.Conditions, error) {
	cond := state.Conditions{IfMatch: r.Header.Get("If-Match"), IfNoneMatch: r.Header.Get("If-None-Match")}
	for name, at := range map[string]*time.Time{"If-Modified-Since": &cond.IfModifiedSince, "If-Unmodified-Since": &cond.IfUnmodifiedSince} {
		text := r.Header.Get(name)
		if text == "" {
			continue
		}
		t, err := http.ParseTime(text)
		if err != nil {
			return cond, badHeader(name, "is no HTTP date")
		}
		*at = t
	}
	var err error
	cond.LeaseID, err = r.leaseID("x-ms-lease-id")
	return cond, err
}

// leaseID reads a lease id, a GUID in any of its spellings; "" when absent.
func (r *request) leaseID(name string) (string, error) {
	text := r.Header.Get(name)
	if text == "" {
		return "", nil
	}
	id, err := uuid.Parse(text)
	if err != nil {
		return "", badHeader(name, "is no GUID")
	}
	return id.String(), nil
}

// seconds reads a whole number; def when the header is absent.
func (r *request) seconds(name string, def int) (int, error) {
	text := r.Header.Get(name)
	if text == "" {
		return def, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, badHeader(name, "is no whole number")
	}
	return n, nil
}

// metadata reads the x-ms-meta- headers; names come out in lower case.
func (r *request) metadata() map[string]string {
	meta := map[string]string{}
	for name := range r.Header {
		if key, ok := strings.CutPrefix(strings.ToLower(name), "x-ms-meta-"); ok {
			meta[key] = r.Header.Get(name)
		}
	}
	return meta
}

// headers reads the properties to keep with a blob. Put Blob's own
// Content-Type counts where x-ms-blob-content-type is absent.
func (r *request) headers(contentType string) (state.Headers, error) {
	sum, err := r.md5("x-ms-blob-content-md5")
	if err != nil {
		return state.Headers{}, err
	}
	if given := r.Header.Get("x-ms-blob-content-type"); given != "" {
		contentType = given
	}
	return state.Headers{
		ContentType:        contentType,
		ContentEncoding:    r.Header.Get("x-ms-blob-content-encoding"),
		ContentLanguage:    r.Header.Get("x-ms-blob-content-language"),
		ContentDisposition: r.Header.Get("x-ms-blob-content-disposition"),
		CacheControl:       r.Header.Get("x-ms-blob-cache-control"),
		ContentMD5:         sum,
	}, nil
}
