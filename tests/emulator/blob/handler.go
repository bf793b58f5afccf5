package blob

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/state"
)

// operation is one REST operation and everything that a client may send with it.
type operation struct {
	name    string
	headers []string // x-ms- headers in addition to the common ones; "x-ms-meta-" is a prefix
	params  []string // query parameters in addition to those that select the operation
	bySAS   bool     // also done for a shared access signature with the permission r
	handle  func(*Server, *request) error
}

// route names an operation: GET and HEAD are one where both exist.
type route struct {
	level  string // service, container or blob
	method string
	comp   string
}

var (
	blobHeaders = []string{
		"x-ms-blob-type", "x-ms-blob-content-type", "x-ms-blob-content-encoding", "x-ms-blob-content-language",
		"x-ms-blob-content-disposition", "x-ms-blob-cache-control", "x-ms-blob-content-md5", "x-ms-meta-", "x-ms-lease-id",
	}
	leaseHeaders = []string{
		"x-ms-lease-action", "x-ms-lease-id", "x-ms-lease-duration", "x-ms-proposed-lease-id", "x-ms-lease-break-period",
	}
	readHeaders = []string{"x-ms-lease-id", "x-ms-range", "x-ms-range-get-content-md5"}
	listParams  = []string{"prefix", "marker", "maxresults", "include", "delimiter"}
)

// operations is everything this server can do; what is not here is refused by its name in
// [unsupported], by that of [foreign] if a service knows it.
var operations = map[route]operation{
	{"service", "GET", "list"}: {name: "List Containers", params: listParams, handle: (*Server).listContainers},

	{"container", "PUT", ""}:         {name: "Create Container", headers: []string{"x-ms-meta-"}, handle: (*Server).createContainer},
	{"container", "GET", ""}:         {name: "Get Container Properties", handle: (*Server).getContainer},
	{"container", "HEAD", ""}:        {name: "Get Container Properties", handle: (*Server).getContainer},
	{"container", "GET", "metadata"}: {name: "Get Container Metadata", handle: (*Server).getContainer},
	{"container", "PUT", "metadata"}: {name: "Set Container Metadata", headers: []string{"x-ms-meta-"}, handle: (*Server).setContainerMetadata},
	{"container", "DELETE", ""}:      {name: "Delete Container", handle: (*Server).deleteContainer},
	{"container", "GET", "list"}:     {name: "List Blobs", params: listParams, handle: (*Server).listBlobs},

	{"blob", "PUT", ""}:           {name: "Put Blob", headers: blobHeaders, handle: (*Server).putBlob},
	{"blob", "PUT", "block"}:      {name: "Put Block", headers: []string{"x-ms-lease-id"}, params: []string{"blockid"}, handle: (*Server).putBlock},
	{"blob", "PUT", "blocklist"}:  {name: "Put Block List", headers: blobHeaders, handle: (*Server).putBlockList},
	{"blob", "GET", "blocklist"}:  {name: "Get Block List", headers: []string{"x-ms-lease-id"}, params: []string{"blocklisttype"}, bySAS: true, handle: (*Server).getBlockList},
	{"blob", "GET", ""}:           {name: "Get Blob", headers: readHeaders, bySAS: true, handle: (*Server).getBlob},
	{"blob", "HEAD", ""}:          {name: "Get Blob Properties", headers: []string{"x-ms-lease-id"}, bySAS: true, handle: (*Server).headBlob},
	{"blob", "GET", "metadata"}:   {name: "Get Blob Metadata", headers: []string{"x-ms-lease-id"}, bySAS: true, handle: (*Server).headBlob},
	{"blob", "HEAD", "metadata"}:  {name: "Get Blob Metadata", headers: []string{"x-ms-lease-id"}, bySAS: true, handle: (*Server).headBlob},
	{"blob", "PUT", "metadata"}:   {name: "Set Blob Metadata", headers: []string{"x-ms-meta-", "x-ms-lease-id"}, handle: (*Server).setBlobMetadata},
	{"blob", "PUT", "properties"}: {name: "Set Blob Properties", headers: blobHeaders[1:], handle: (*Server).setBlobProperties},
	{"blob", "PUT", "lease"}:      {name: "Lease Blob", headers: leaseHeaders, handle: (*Server).leaseBlob},
	{"blob", "DELETE", ""}:        {name: "Delete Blob", headers: []string{"x-ms-lease-id", "x-ms-delete-snapshots"}, handle: (*Server).deleteBlob},
}

// foreign names the operations that a service knows and this server does not.
var foreign = map[route]string{
	{"service", "GET", "properties"}:         "Get Blob Service Properties",
	{"service", "PUT", "properties"}:         "Set Blob Service Properties",
	{"service", "GET", "stats"}:              "Get Blob Service Stats",
	{"service", "POST", "userdelegationkey"}: "Get User Delegation Key",
	{"service", "POST", "batch"}:             "Blob Batch",
	{"service", "GET", "blobs"}:              "Find Blobs by Tags",

	{"container", "GET", "acl"}:      "Get Container ACL",
	{"container", "HEAD", "acl"}:     "Get Container ACL",
	{"container", "PUT", "acl"}:      "Set Container ACL",
	{"container", "PUT", "lease"}:    "Lease Container",
	{"container", "PUT", "undelete"}: "Restore Container",
	{"container", "PUT", "rename"}:   "Rename Container",
	{"container", "POST", "batch"}:   "Blob Batch",
	{"container", "GET", "blobs"}:    "Find Blobs by Tags",

	{"blob", "PUT", "appendblock"}:             "Append Block",
	{"blob", "PUT", "page"}:                    "Put Page",
	{"blob", "GET", "pagelist"}:                "Get Page Ranges",
	{"blob", "PUT", "incrementalcopy"}:         "Incremental Copy Blob",
	{"blob", "PUT", "copy"}:                    "Abort Copy Blob",
	{"blob", "PUT", "snapshot"}:                "Snapshot Blob",
	{"blob", "PUT", "undelete"}:                "Undelete Blob",
	{"blob", "PUT", "tier"}:                    "Set Blob Tier",
	{"blob", "GET", "tags"}:                    "Get Blob Tags",
	{"blob", "PUT", "tags"}:                    "Set Blob Tags",
	{"blob", "PUT", "seal"}:                    "Append Blob Seal",
	{"blob", "PUT", "expiry"}:                  "Set Blob Expiry",
	{"blob", "PUT", "legalhold"}:               "Set Blob Legal Hold",
	{"blob", "PUT", "immutabilityPolicies"}:    "Set Blob Immutability Policy",
	{"blob", "DELETE", "immutabilityPolicies"}: "Delete Blob Immutability Policy",
	{"blob", "POST", "query"}:                  "Query Blob Contents",
}

// account is the operation that restype=account selects, for the account, a container or a blob.
const account = "Get Account Information"

// copying are the operations that a header turns Put Blob and Put Block into.
var copying = map[string]string{"Put Blob": "Copy Blob", "Put Block": "Put Block from URL"}

var (
	commonHeaders = []string{"x-ms-version", "x-ms-date", "x-ms-client-request-id", "x-ms-return-client-request-id"}
	commonParams  = []string{"comp", "restype", "timeout"}
)

// maxMetadata is how many bytes the metadata of a blob or container may have together
// [set-blob-metadata].
const maxMetadata = 8 << 10

// metadataName is an identifier of C# [naming-and-referencing-containers--blobs--and-metadata]; a
// header has no other letters.
var metadataName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// ServeHTTP answers one request of the Blob REST protocol.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rec := &statusWriter{ResponseWriter: w}
	started := time.Now()
	h := rec.Header()
	h.Set("Server", "Sluice-Blob/1.0")
	h.Set("x-ms-request-id", uuid.NewString())
	h.Set("x-ms-version", cmp.Or(r.Header.Get("x-ms-version"), r.URL.Query().Get("sv")))
	if id := r.Header.Get("x-ms-client-request-id"); id != "" {
		h.Set("x-ms-client-request-id", id)
	}
	name, err := s.serve(rec, r)
	if err != nil {
		writeError(rec, r, err)
	}
	s.opts.Logger.Debug("blob request", "operation", name, "status", rec.status,
		"error_code", h.Get("x-ms-error-code"), "elapsed", time.Since(started))
	if s.opts.OnRequest != nil {
		s.opts.OnRequest(r, rec.status)
	}
}

// serve answers r, or returns why not. The name is the operation's.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) (name string, err error) {
	if status := s.failing(); status != 0 {
		code := "InternalError"
		if status == http.StatusServiceUnavailable {
			code = "ServerBusy"
		}
		return "injected failure", state.NewError(status, code, "The server is failing on purpose.")
	}
	signed := r.Header.Get("Authorization") == "" && r.URL.Query().Has("sig")
	if signed {
		err = s.checkSAS(r)
	} else {
		err = s.authenticate(r)
	}
	if err != nil {
		return "authenticate", err
	}
	req, err := s.parse(w, r, signed)
	if err != nil {
		return "parse", err
	}
	op, ok := operations[route{req.level, r.Method, req.query.Get("comp")}]
	if !ok || req.query.Get("restype") == "account" {
		return "unsupported", unsupported(req)
	}
	if signed {
		if err := op.permits(req.query); err != nil {
			return op.name, err
		}
	}
	if err := op.allows(req); err != nil {
		return op.name, err
	}
	size := 0
	for name, value := range req.metadata() {
		if !metadataName.MatchString(name) {
			return op.name, state.NewError(http.StatusBadRequest, "InvalidMetadata", "The metadata specified is invalid. It has characters that are not permitted.")
		}
		size += len(name) + len(value)
	}
	if size > maxMetadata {
		return op.name, state.NewError(http.StatusBadRequest, "MetadataTooLarge", "The size of the specified metadata exceeds the maximum size permitted.")
	}
	return op.name, op.handle(s, req)
}

// allows refuses headers and parameters the operation does not know, by name.
func (op operation) allows(req *request) error {
	for name := range req.Header {
		lower := strings.ToLower(name)
		if !strings.HasPrefix(lower, "x-ms-") || slices.Contains(commonHeaders, lower) || slices.Contains(op.headers, lower) ||
			strings.HasPrefix(lower, "x-ms-meta-") && slices.Contains(op.headers, "x-ms-meta-") {
			continue
		}
		if lower == "x-ms-copy-source" && copying[op.name] != "" {
			return unsupportedText(copying[op.name])
		}
		return unsupportedText("the header " + lower + " of " + op.name)
	}
	for name := range req.query {
		if signature := req.signed && slices.Contains(sasParams, name); !signature && !slices.Contains(commonParams, name) && !slices.Contains(op.params, name) {
			return unsupportedText("the query parameter " + name + " of " + op.name)
		}
	}
	return nil
}

// unsupported names the operation that is missing.
func unsupported(req *request) error {
	comp := req.query.Get("comp")
	if req.query.Get("restype") == "account" {
		return unsupportedText(account)
	}
	if name, ok := foreign[route{req.level, req.Method, comp}]; ok {
		return unsupportedText(name)
	}
	what := req.Method + " on a " + req.level
	if comp != "" {
		what += " with comp=" + comp
	}
	return unsupportedText(what)
}

// unsupportedText refuses what this server does not do. The status is one that clients do not
// retry.
func unsupportedText(what string) error {
	return state.NewError(http.StatusNotImplemented, "NotImplemented", "The embedded Blob Storage does not support "+what+".")
}

type errorBody struct {
	XMLName xml.Name `xml:"Error"`
	Code    string
	Message string
}

// writeError writes err as the service does: the code in a header and, if a body is allowed, in XML
// [status-and-error-codes].
func writeError(w http.ResponseWriter, r *http.Request, err error) {
	refusal, ok := errors.AsType[*state.Error](err)
	if !ok {
		refusal = state.NewError(http.StatusInternalServerError, "InternalError", err.Error())
	}
	w.Header().Set("x-ms-error-code", refusal.Code)
	if r.Method == http.MethodHead || refusal.Status == http.StatusNotModified {
		w.WriteHeader(refusal.Status)
		return
	}
	writeXML(w, refusal.Status, errorBody{Code: refusal.Code, Message: refusal.Message +
		"\nRequestId:" + w.Header().Get("x-ms-request-id") + "\nTime:" + time.Now().UTC().Format(time.RFC3339Nano)})
}

func writeXML(w http.ResponseWriter, status int, body any) {
	text, err := xml.Marshal(body)
	if err != nil {
		panic("blob: marshal answer: " + err.Error()) // only our own types come here
	}
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	text = bytes.ReplaceAll(text, []byte("&#xA;"), []byte("\n")) // JavaScript's client shows the text as it came
	// If the answer cannot be written, the client is gone.
	_, _ = w.Write(append([]byte(xml.Header), text...))
}

// statusWriter remembers the status for the log and the observer.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}
