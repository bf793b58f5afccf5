package blob

import (
	"cmp"
	"crypto/md5" // the protocol's checksum, no secret hangs on it
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/state"
)

// accessTier is that of a blob for which none was chosen.
const accessTier = "Hot"

const octets = "application/octet-stream"

// written answers a write: the new ETag and time.
func (r *request) written(status int, b state.Blob) error {
	h := r.w.Header()
	h.Set("ETag", b.ETag)
	h.Set("Last-Modified", b.LastModified.Format(http.TimeFormat))
	r.w.WriteHeader(status)
	return nil
}

func (s *Server) putBlob(r *request) error {
	if kind := r.Header.Get("x-ms-blob-type"); kind != "BlockBlob" {
		if kind == "AppendBlob" || kind == "PageBlob" {
			return unsupportedText("Put Blob of an " + kind)
		}
		return badHeader("x-ms-blob-type", "is "+strconv.Quote(kind))
	}
	cond, err := r.conditions()
	if err != nil {
		return err
	}
	headers, err := r.headers(cmp.Or(r.Header.Get("Content-Type"), octets))
	if err != nil {
		return err
	}
	data, err := r.body()
	if err != nil {
		return err
	}
	if err := checkMD5(headers.ContentMD5, data); err != nil {
		return err
	}
	sum := md5.Sum(data)
	headers.ContentMD5 = sum[:]
	b, err := s.account.Put(r.container, r.blob, data, headers, r.metadata(), cond)
	if err != nil {
		return err
	}
	r.w.Header().Set("Content-MD5", base64.StdEncoding.EncodeToString(headers.ContentMD5))
	r.w.Header().Set("x-ms-request-server-encrypted", "true")
	return r.written(http.StatusCreated, b)
}

func (s *Server) setBlobMetadata(r *request) error {
	cond, err := r.conditions()
	if err != nil {
		return err
	}
	b, err := s.account.SetMetadata(r.container, r.blob, r.metadata(), cond)
	if err != nil {
		return err
	}
	return r.written(http.StatusOK, b)
}

func (s *Server) setBlobProperties(r *request) error {
	cond, err := r.conditions()
	if err != nil {
		return err
	}
	headers, err := r.headers("")
	if err != nil {
		return err
	}
	b, err := s.account.SetHeaders(r.container, r.blob, headers, cond)
	if err != nil {
		return err
	}
	return r.written(http.StatusOK, b)
}

func (s *Server) deleteBlob(r *request) error {
	if mode := r.Header.Get("x-ms-delete-snapshots"); mode != "" && mode != "include" {
		return unsupportedText("x-ms-delete-snapshots: " + mode + " of Delete Blob")
	}
	cond, err := r.conditions()
	if err != nil {
		return err
	}
	if err := s.account.Delete(r.container, r.blob, cond); err != nil {
		return err
	}
	r.w.Header().Set("x-ms-delete-type-permanent", "true")
	r.w.WriteHeader(http.StatusAccepted)
	return nil
}

// describe sets the headers that Get Blob and Get Blob Properties share.
func (r *request) describe(b state.Blob) {
	h := r.w.Header()
	for name, value := range map[string]string{
		"Content-Type": b.ContentType, "Content-Encoding": b.ContentEncoding, "Content-Language": b.ContentLanguage,
		"Content-Disposition": b.ContentDisposition, "Cache-Control": b.CacheControl,
	} {
		if value != "" {
			h.Set(name, value)
		}
	}
	for name, value := range b.Meta {
		h["x-ms-meta-"+name] = []string{value} // in lower case: Python's client keeps the case
	}
	h.Set("ETag", b.ETag)
	h.Set("Last-Modified", b.LastModified.Format(http.TimeFormat))
	h.Set("x-ms-creation-time", b.Created.UTC().Format(http.TimeFormat))
	h.Set("x-ms-blob-type", "BlockBlob")
	h.Set("x-ms-server-encrypted", "true")
	h.Set("Accept-Ranges", "bytes")
	h.Set("x-ms-access-tier", accessTier)
	h.Set("x-ms-access-tier-inferred", "true")
	status, duration := leaseText(b)
	h.Set("x-ms-lease-state", string(b.LeaseState))
	h.Set("x-ms-lease-status", status)
	if duration != "" {
		h.Set("x-ms-lease-duration", duration)
	}
	for param, name := range map[string]string{
		"rscc": "Cache-Control", "rscd": "Content-Disposition", "rsce": "Content-Encoding", "rscl": "Content-Language", "rsct": "Content-Type",
	} {
		if value := r.query.Get(param); value != "" && r.signed {
			h.Set(name, value)
		}
	}
}

// leaseText returns a lease's status and, while it is held, its kind of duration.
func leaseText(b state.Blob) (status, duration string) {
	status = "unlocked"
	if b.LeaseLocked {
		status = "locked"
	}
	switch {
	case b.LeaseInfinite:
		duration = "infinite"
	case b.LeaseState == state.Leased:
		duration = "fixed"
	}
	return status, duration
}

func (s *Server) headBlob(r *request) error {
	cond, err := r.conditions()
	if err != nil {
		return err
	}
	b, err := s.account.Get(r.container, r.blob, cond)
	if err != nil {
		return err
	}
	r.describe(b)
	if b.ContentMD5 != nil {
		r.w.Header().Set("Content-MD5", base64.StdEncoding.EncodeToString(b.ContentMD5))
	}
	length := len(b.Data)
	if r.query.Get("comp") == "metadata" {
		length = 0
	}
	r.w.Header().Set("Content-Length", strconv.Itoa(length))
	r.w.WriteHeader(http.StatusOK)
	return nil
}

// maxRangeMD5 bounds the range x-ms-range-get-content-md5 may ask for [get-blob].
const maxRangeMD5 = 4 << 20

func (s *Server) getBlob(r *request) error {
	cond, err := r.conditions()
	if err != nil {
		return err
	}
	b, err := s.account.Get(r.container, r.blob, cond)
	if err != nil {
		return err
	}
	rangeText := cmp.Or(r.Header.Get("x-ms-range"), r.Header.Get("Range"))
	from, to, err := parseRange(rangeText, len(b.Data))
	if err != nil {
		r.w.Header().Set("Content-Range", "bytes */"+strconv.Itoa(len(b.Data)))
		return err
	}
	data, status, md5Header := b.Data[from:to], http.StatusPartialContent, "x-ms-blob-content-md5"
	wantMD5 := strings.EqualFold(r.Header.Get("x-ms-range-get-content-md5"), "true")
	if wantMD5 && (rangeText == "" || len(data) > maxRangeMD5) {
		return badHeader("x-ms-range-get-content-md5", "needs a range of at most 4 MiB")
	}
	h := r.w.Header()
	if rangeText == "" {
		status, md5Header = http.StatusOK, "Content-MD5"
	} else {
		h.Set("Content-Range", "bytes "+strconv.Itoa(from)+"-"+strconv.Itoa(to-1)+"/"+strconv.Itoa(len(b.Data)))
	}
	if wantMD5 {
		sum := md5.Sum(data)
		h.Set("Content-MD5", base64.StdEncoding.EncodeToString(sum[:]))
	}
	r.describe(b)
	if b.ContentMD5 != nil {
		h.Set(md5Header, base64.StdEncoding.EncodeToString(b.ContentMD5))
	}
	h.Set("Content-Length", strconv.Itoa(len(data)))
	r.w.WriteHeader(status)
	_, _ = r.w.Write(data) // a client that went away needs no answer
	return nil
}

// parseRange reads bytes=from-to or bytes=from- over a content of size bytes;
// to is exclusive in the answer. An empty text is the whole.
func parseRange(text string, size int) (from, to int, err error) {
	if text == "" {
		return 0, size, nil
	}
	spec, ok := strings.CutPrefix(text, "bytes=")
	first, last, dash := strings.Cut(spec, "-")
	from, fromErr := strconv.Atoi(first)
	if !ok || !dash || fromErr != nil {
		return 0, 0, badHeader("Range", "is not of the form bytes=from-to")
	}
	to = size
	if last != "" {
		n, lastErr := strconv.Atoi(last)
		if lastErr != nil || n < from {
			return 0, 0, badHeader("Range", "is not of the form bytes=from-to")
		}
		to = min(size, n+1)
	}
	if from < 0 || from >= size {
		return 0, 0, state.ErrInvalidRange
	}
	return from, to, nil
}
