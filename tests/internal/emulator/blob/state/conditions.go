package state

import (
	"strings"
	"time"
)

// Conditions are the conditional headers of one request and its lease id. The
// zero value asks for nothing [conditional].
type Conditions struct {
	IfMatch           string // an ETag, or "*": the blob must exist
	IfNoneMatch       string // an ETag, or "*": the blob must not exist
	IfModifiedSince   time.Time
	IfUnmodifiedSince time.Time
	LeaseID           string
}

// sameETag compares ETags strongly; the service takes them without quotes too.
func sameETag(a, b string) bool {
	return strings.Trim(a, `"`) == strings.Trim(b, `"`)
}

// checkRead applies the conditions to an existing blob for a read: what the
// client already has is 304, what it asked for in vain is 412.
func (c Conditions) checkRead(b *blob) error {
	if c.IfNoneMatch == "*" {
		return ErrUnsatisfiable
	}
	if c.IfMatch != "" && c.IfMatch != "*" && !sameETag(c.IfMatch, b.etag) {
		return ErrConditionNotMet
	}
	if !c.IfUnmodifiedSince.IsZero() && b.lastModified.After(c.IfUnmodifiedSince) {
		return ErrConditionNotMet
	}
	if c.IfNoneMatch != "" && sameETag(c.IfNoneMatch, b.etag) {
		return ErrNotModified
	}
	if !c.IfModifiedSince.IsZero() && !b.lastModified.After(c.IfModifiedSince) {
		return ErrNotModified
	}
	return nil
}

// checkWrite applies the conditions to a blob that is about to be written; nil
// for one that does not exist. Every refusal is 412, but creating what must not
// exist and does is 409 BlobAlreadyExists.
func (c Conditions) checkWrite(b *blob) error {
	if b == nil {
		if c.IfMatch != "" {
			return ErrConditionNotMet
		}
		return nil
	}
	switch {
	case c.IfMatch != "" && c.IfMatch != "*" && !sameETag(c.IfMatch, b.etag),
		!c.IfUnmodifiedSince.IsZero() && b.lastModified.After(c.IfUnmodifiedSince),
		!c.IfModifiedSince.IsZero() && !b.lastModified.After(c.IfModifiedSince):
		return ErrConditionNotMet
	case c.IfNoneMatch == "*":
		return ErrBlobAlreadyExists
	case c.IfNoneMatch != "" && sameETag(c.IfNoneMatch, b.etag):
		return ErrConditionNotMet
	}
	return nil
}
