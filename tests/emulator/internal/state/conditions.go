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

// tagged reports whether the ETag is in a comma-separated list. ETags compare strongly; the service
// accepts them without quotes as well.
func tagged(list, etag string) bool {
	for one := range strings.SplitSeq(list, ",") {
		if one = strings.TrimSpace(one); one == "*" || strings.Trim(one, `"`) == strings.Trim(etag, `"`) {
			return true
		}
	}
	return false
}

// checkRead applies the conditions to an existing blob for a read: 304 if the client already has
// it, 412 if a precondition fails. Any combination is allowed and means If-Match &&
// If-Unmodified-Since && (If-None-Match || If-Modified-Since) [conditional].
func (c Conditions) checkRead(b *blob) error {
	if c.IfNoneMatch == "*" {
		return ErrUnsatisfiable
	}
	if c.IfMatch != "" && !tagged(c.IfMatch, b.etag) {
		return ErrConditionNotMet
	}
	if !c.IfUnmodifiedSince.IsZero() && b.lastModified.After(c.IfUnmodifiedSince) {
		return ErrConditionNotMet
	}
	byTag, byTime := c.IfNoneMatch != "", !c.IfModifiedSince.IsZero()
	if !byTag && !byTime || byTag && !tagged(c.IfNoneMatch, b.etag) || byTime && b.lastModified.After(c.IfModifiedSince) {
		return nil
	}
	return ErrNotModified
}

// checkWrite applies the conditions to a blob that is about to be written; nil
// for one that does not exist. Every refusal is 412; only that creating what
// must not exist and does is 409 is left to the operations that create.
func (c Conditions) checkWrite(b *blob) error {
	byMatch, byNone := c.IfMatch != "", c.IfNoneMatch != ""
	since, unmodified := !c.IfModifiedSince.IsZero(), !c.IfUnmodifiedSince.IsZero()
	// Of the pairs, only these two are allowed, and the ETag decides.
	since, unmodified = since && !byNone, unmodified && !byMatch
	if (byMatch || unmodified) && (byNone || since) || since && unmodified {
		return ErrMultipleConditions
	}
	if b == nil {
		if byMatch {
			return ErrConditionNotMet
		}
		return nil
	}
	switch {
	case byMatch && !tagged(c.IfMatch, b.etag),
		unmodified && b.lastModified.After(c.IfUnmodifiedSince),
		since && !b.lastModified.After(c.IfModifiedSince),
		byNone && tagged(c.IfNoneMatch, b.etag):
		return ErrConditionNotMet
	}
	return nil
}
