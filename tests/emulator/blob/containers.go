package blob

import (
	"net/http"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/state"
)

// encryptionScope is that of a container for which none was chosen.
const encryptionScope = "$account-encryption-key"

func (r *request) describeContainer(status int, info state.ContainerInfo) error {
	h := r.w.Header()
	h.Set("ETag", info.ETag)
	h.Set("Last-Modified", info.LastModified.Format(http.TimeFormat))
	r.w.WriteHeader(status)
	return nil
}

func (s *Server) createContainer(r *request) error {
	info, err := s.account.CreateContainer(r.container, r.metadata())
	if err != nil {
		return err
	}
	return r.describeContainer(http.StatusCreated, info)
}

func (s *Server) getContainer(r *request) error {
	info, err := s.account.Container(r.container)
	if err != nil {
		return err
	}
	h := r.w.Header()
	for name, value := range info.Meta {
		h["x-ms-meta-"+name] = []string{value} // in lower case: Python's client keeps the case
	}
	h.Set("x-ms-lease-state", string(state.Available))
	h.Set("x-ms-lease-status", "unlocked")
	h.Set("x-ms-has-immutability-policy", "false")
	h.Set("x-ms-has-legal-hold", "false")
	h.Set("x-ms-default-encryption-scope", encryptionScope)
	h.Set("x-ms-deny-encryption-scope-override", "false")
	return r.describeContainer(http.StatusOK, info)
}

func (s *Server) setContainerMetadata(r *request) error {
	if r.Header.Get("If-Modified-Since") != "" {
		return unsupportedText("the header If-Modified-Since of Set Container Metadata")
	}
	info, err := s.account.SetContainerMetadata(r.container, r.metadata())
	if err != nil {
		return err
	}
	return r.describeContainer(http.StatusOK, info)
}

func (s *Server) deleteContainer(r *request) error {
	for _, name := range []string{"If-Modified-Since", "If-Unmodified-Since"} {
		if r.Header.Get(name) != "" {
			return unsupportedText("the header " + name + " of Delete Container")
		}
	}
	if err := s.account.DeleteContainer(r.container); err != nil {
		return err
	}
	r.w.WriteHeader(http.StatusAccepted)
	return nil
}
