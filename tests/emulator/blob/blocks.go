package blob

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/state"
)

// maxBlocks is how many blocks a blob may have [put-block-list].
const maxBlocks = 50_000

// maxBlockID is how many bytes a block id may have before it is encoded [put-block].
const maxBlockID = 64

func (s *Server) putBlock(r *request) error {
	id := r.query.Get("blockid")
	raw, err := base64.StdEncoding.DecodeString(id)
	if err != nil || len(raw) == 0 || len(raw) > maxBlockID {
		return state.NewError(http.StatusBadRequest, "InvalidQueryParameterValue", "blockid must be 1 to 64 bytes in base64.")
	}
	leaseID, err := r.leaseID("x-ms-lease-id")
	if err != nil {
		return err
	}
	data, err := r.body()
	if err != nil {
		return err
	}
	if len(data) == 0 {
		return badHeader("Content-Length", "is 0: a block has content")
	}
	if err := s.account.Stage(r.container, r.blob, id, data, leaseID); err != nil {
		return err
	}
	r.w.WriteHeader(http.StatusCreated)
	return nil
}

func (s *Server) putBlockList(r *request) error {
	cond, err := r.conditions()
	if err != nil {
		return err
	}
	headers, err := r.headers(octets)
	if err != nil {
		return err
	}
	body, err := r.body()
	if err != nil {
		return err
	}
	list, err := parseBlockList(body)
	if err != nil {
		return err
	}
	b, err := s.account.Commit(r.container, r.blob, list, headers, r.metadata(), cond)
	if err != nil {
		return err
	}
	r.w.Header().Set("x-ms-request-server-encrypted", "true")
	return r.written(http.StatusCreated, b)
}

// parseBlockList reads the list in document order, which decides the content:
// the three kinds of entries may be mixed.
func parseBlockList(body []byte) ([]state.BlockRef, error) {
	sources := map[string]state.BlockSource{
		"Latest": state.FromLatest, "Committed": state.FromCommitted, "Uncommitted": state.FromUncommitted,
	}
	invalid := state.NewError(http.StatusBadRequest, "InvalidXmlDocument", "The block list is no valid XML.")
	var list []state.BlockRef
	decoder := xml.NewDecoder(bytes.NewReader(body))
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return list, nil
		}
		if err != nil {
			return nil, invalid
		}
		start, ok := token.(xml.StartElement)
		if !ok || start.Name.Local == "BlockList" {
			continue
		}
		source, ok := sources[start.Name.Local]
		if !ok {
			return nil, state.NewError(http.StatusBadRequest, "UnsupportedXmlNode", "The node "+start.Name.Local+" is unknown in a block list.")
		}
		var id string
		if err := decoder.DecodeElement(&id, &start); err != nil {
			return nil, invalid
		}
		if len(list) == maxBlocks {
			return nil, state.NewError(http.StatusBadRequest, "BlockListTooLong", "The block list may not contain more than 50,000 blocks.")
		}
		list = append(list, state.BlockRef{ID: id, Source: source})
	}
}

type blockXML struct {
	Name string
	Size int
}

type blocksIn struct {
	Block []blockXML
}

type blockListXML struct {
	XMLName           xml.Name  `xml:"BlockList"`
	CommittedBlocks   *blocksIn `xml:",omitempty"`
	UncommittedBlocks *blocksIn `xml:",omitempty"`
}

func (s *Server) getBlockList(r *request) error {
	which := cmp.Or(r.query.Get("blocklisttype"), "committed")
	if which != "committed" && which != "uncommitted" && which != "all" {
		return state.NewError(http.StatusBadRequest, "InvalidQueryParameterValue", "blocklisttype must be committed, uncommitted or all.")
	}
	leaseID, err := r.leaseID("x-ms-lease-id")
	if err != nil {
		return err
	}
	b, committed, staged, err := s.account.Blocks(r.container, r.blob, leaseID)
	if err != nil {
		return err
	}
	var list blockListXML
	if which != "uncommitted" {
		list.CommittedBlocks = toXML(committed)
	}
	if which != "committed" {
		list.UncommittedBlocks = toXML(staged)
	}
	if b.ETag != "" {
		r.w.Header().Set("ETag", b.ETag)
		r.w.Header().Set("Last-Modified", b.LastModified.Format(http.TimeFormat))
	}
	r.w.Header().Set("x-ms-blob-content-length", strconv.Itoa(b.Size))
	writeXML(r.w, http.StatusOK, list)
	return nil
}

func toXML(blocks []state.Block) *blocksIn {
	in := &blocksIn{}
	for _, b := range blocks {
		in.Block = append(in.Block, blockXML{Name: b.ID, Size: b.Size})
	}
	return in
}
