package conformance

import (
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
)

const (
	available = lease.StateTypeAvailable
	leased    = lease.StateTypeLeased
	breaking  = lease.StateTypeBreaking
	broken    = lease.StateTypeBroken
	expired   = lease.StateTypeExpired
)

// leaseTableCases returns the two outcome tables of the Lease Blob page: every
// operation in every state of a lease by idA.
func leaseTableCases() []blobCase {
	states := []lease.StateType{available, leased, breaking, broken, expired}
	// Azurite has one code for a lost lease, no matter which client holds the blob now.
	lostIsNotPresent := &difference{blobLeaseNotThere, "LeaseLost is documented for the id of a lease that has expired; Azurite forgets whose it was"}
	unbounded := &difference{okay, "a break period is documented as 0 to 60 s; Azurite checks that of a fixed or breaking lease only"}
	rows := []struct {
		name string
		do   func(*blobEnv) error
		want [5]blobResult
		// azurite's differences by state
		azurite map[lease.StateType]*difference
	}{
		{
			name: "acquire A", do: func(e *blobEnv) error { return e.acquire(idA, 60) },
			want: [5]blobResult{okay, okay, breakingNoAcquire, okay, okay},
		},
		{
			name: "acquire B", do: func(e *blobEnv) error { return e.acquire(idB, 60) },
			want: [5]blobResult{okay, leasePresent, leasePresent, okay, okay},
		},
		{
			name: "acquire for 14 s", do: func(e *blobEnv) error { return e.acquire(idA, 14) },
			want: [5]blobResult{badRequest, badRequest, breakingNoAcquire, badRequest, badRequest},
		},
		{
			name: "acquire for 61 s", do: func(e *blobEnv) error { return e.acquire(idA, 61) },
			want: [5]blobResult{badRequest, badRequest, breakingNoAcquire, badRequest, badRequest},
		},
		{
			name: "acquire for ever", do: func(e *blobEnv) error { return e.acquire(idB, -1) },
			want: [5]blobResult{okay, leasePresent, leasePresent, okay, okay},
		},
		{
			name: "break after 0", do: func(e *blobEnv) error { return e.breaks(0) },
			want: [5]blobResult{leaseNotPresent, okay, okay, okay, okay},
		},
		{
			name: "break after 5", do: func(e *blobEnv) error { return e.breaks(5) },
			want: [5]blobResult{leaseNotPresent, okay, okay, okay, okay},
		},
		{
			name: "break", do: func(e *blobEnv) error { return e.breaks(-1) },
			want: [5]blobResult{leaseNotPresent, okay, okay, okay, okay},
		},
		{
			name: "break after 61", do: func(e *blobEnv) error { return e.breaks(61) },
			want: [5]blobResult{badRequest, badRequest, badRequest, badRequest, badRequest},
			azurite: map[lease.StateType]*difference{
				available: {leaseNotPresent, "a period above 60 s is a bad request; Azurite checks the state first"},
				leased:    unbounded, broken: unbounded, expired: unbounded,
			},
		},
		{
			name: "change A to B", do: func(e *blobEnv) error { _, err := e.lease(idA).ChangeLease(e.ctx, idB, nil); return err },
			want: [5]blobResult{leaseNotPresent, okay, breakingNoChange, leaseNotPresent, leaseNotPresent},
		},
		{
			name: "change B to A", do: func(e *blobEnv) error { _, err := e.lease(idB).ChangeLease(e.ctx, idA, nil); return err },
			want: [5]blobResult{leaseNotPresent, okay, leaseMismatch, leaseNotPresent, leaseNotPresent},
		},
		{
			name: "change B to C", do: func(e *blobEnv) error { _, err := e.lease(idB).ChangeLease(e.ctx, idC, nil); return err },
			want: [5]blobResult{leaseNotPresent, leaseMismatch, leaseMismatch, leaseNotPresent, leaseNotPresent},
		},
		{
			name: "renew A", do: func(e *blobEnv) error { _, err := e.lease(idA).RenewLease(e.ctx, nil); return err },
			want: [5]blobResult{leaseMismatch, okay, brokenNoRenew, brokenNoRenew, okay},
		},
		{
			name: "renew B", do: func(e *blobEnv) error { _, err := e.lease(idB).RenewLease(e.ctx, nil); return err },
			want:    [5]blobResult{leaseMismatch, leaseMismatch, leaseMismatch, leaseMismatch, leaseMismatch},
			azurite: map[lease.StateType]*difference{expired: {okay, "documented to fail; Azurite renews an expired lease whatever id is given"}},
		},
		{
			name: "release A", do: func(e *blobEnv) error { _, err := e.lease(idA).ReleaseLease(e.ctx, nil); return err },
			want: [5]blobResult{leaseMismatch, okay, okay, okay, okay},
		},
		{
			name: "release B", do: func(e *blobEnv) error { _, err := e.lease(idB).ReleaseLease(e.ctx, nil); return err },
			want: [5]blobResult{leaseMismatch, leaseMismatch, leaseMismatch, leaseMismatch, leaseMismatch},
		},
		{
			name: "put with A", do: func(e *blobEnv) error { return e.put("v2", withLease(idA)) },
			want:    [5]blobResult{blobLeaseNotThere, okay, okay, blobLeaseLost, blobLeaseLost},
			azurite: map[lease.StateType]*difference{broken: lostIsNotPresent, expired: lostIsNotPresent},
		},
		{
			name: "put with B", do: func(e *blobEnv) error { return e.put("v2", withLease(idB)) },
			want: [5]blobResult{blobLeaseNotThere, blobLeaseMismatch, blobLeaseMismatch, blobLeaseNotThere, blobLeaseNotThere},
		},
		{
			name: "put", do: func(e *blobEnv) error { return e.put("v2", nil) },
			want: [5]blobResult{okay, leaseIDMissing, leaseIDMissing, okay, okay},
		},
		{
			name: "set metadata with A", do: func(e *blobEnv) error { return e.setMetadata(withLease(idA)) },
			want:    [5]blobResult{blobLeaseNotThere, okay, okay, blobLeaseLost, blobLeaseLost},
			azurite: map[lease.StateType]*difference{broken: lostIsNotPresent, expired: lostIsNotPresent},
		},
		{
			name: "set metadata", do: func(e *blobEnv) error { return e.setMetadata(nil) },
			want: [5]blobResult{okay, leaseIDMissing, leaseIDMissing, okay, okay},
		},
		{
			name: "stage a block", do: func(e *blobEnv) error { return e.stage("YQ==", "x", nil) },
			want: [5]blobResult{okay, leaseIDMissing, leaseIDMissing, okay, okay},
		},
		{
			name: "delete with B", do: func(e *blobEnv) error { return e.delete(withLease(idB)) },
			want: [5]blobResult{blobLeaseNotThere, blobLeaseMismatch, blobLeaseMismatch, blobLeaseNotThere, blobLeaseNotThere},
		},
		{
			name: "delete with A", do: func(e *blobEnv) error { return e.delete(withLease(idA)) },
			want:    [5]blobResult{blobLeaseNotThere, okay, okay, blobLeaseLost, blobLeaseLost},
			azurite: map[lease.StateType]*difference{broken: lostIsNotPresent, expired: lostIsNotPresent},
		},
		{
			name: "delete", do: func(e *blobEnv) error { return e.delete(nil) },
			want: [5]blobResult{okay, leaseIDMissing, leaseIDMissing, okay, okay},
		},
		{
			name: "get with A", do: func(e *blobEnv) error { _, err := e.get(withLease(idA), blob.HTTPRange{}); return err },
			want:    [5]blobResult{blobLeaseNotThere, okay, okay, blobLeaseLost, blobLeaseLost},
			azurite: map[lease.StateType]*difference{broken: lostIsNotPresent, expired: lostIsNotPresent},
		},
		{
			name: "get with B", do: func(e *blobEnv) error { _, err := e.get(withLease(idB), blob.HTTPRange{}); return err },
			want: [5]blobResult{blobLeaseNotThere, blobLeaseMismatch, blobLeaseMismatch, blobLeaseNotThere, blobLeaseNotThere},
		},
		{
			name: "get", do: func(e *blobEnv) error { return e.content("v1") },
			want: [5]blobResult{okay, okay, okay, okay, okay},
		},
	}
	var cases []blobCase
	for _, row := range rows {
		for i, state := range states {
			cases = append(cases, blobCase{
				name: row.name + " when " + string(state), start: state,
				steps: []blobStep{{row.do, row.want[i], row.azurite[state]}},
			})
		}
	}
	return cases
}

func (e *blobEnv) setMetadata(cond *blob.AccessConditions) error {
	_, err := e.bc.SetMetadata(e.ctx, map[string]*string{"k": new("v")}, &blob.SetMetadataOptions{AccessConditions: cond})
	return err
}

func (e *blobEnv) delete(cond *blob.AccessConditions) error {
	_, err := e.bc.Delete(e.ctx, &blob.DeleteOptions{AccessConditions: cond})
	return err
}

// leaseSequenceCases covers what the tables do not describe: effects of an operation on the next.
func leaseSequenceCases() []blobCase {
	is := func(s lease.StateType) func(*blobEnv) error { return func(e *blobEnv) error { return e.state(s) } }
	renewA := func(e *blobEnv) error { _, err := e.lease(idA).RenewLease(e.ctx, nil); return err }
	return []blobCase{
		{"an expired lease that was only read is renewed", expired, []blobStep{
			{do: func(e *blobEnv) error { return e.content("v1") }},
			{do: renewA},
			{do: is(leased)},
			{do: func(e *blobEnv) error { return e.put("v2", nil) }, want: leaseIDMissing},
		}},
		{"an expired lease whose blob was written is gone", expired, []blobStep{
			{do: func(e *blobEnv) error { return e.put("v2", nil) }},
			{do: is(available)},
			{do: renewA, want: leaseMismatch},
		}},
		{"an expired lease whose metadata was written is gone", expired, []blobStep{
			{do: func(e *blobEnv) error { return e.setMetadata(nil) }},
			{do: renewA, want: leaseMismatch},
		}},
		{"an expired lease that another took is gone", expired, []blobStep{
			{do: func(e *blobEnv) error { return e.acquire(idB, 60) }},
			{do: renewA, want: leaseMismatch},
			{do: func(e *blobEnv) error { return e.put("v2", withLease(idA)) }, want: blobLeaseMismatch},
			{do: func(e *blobEnv) error { return e.put("v2", withLease(idB)) }},
		}},
		{"a broken lease is free for another at once", leased, []blobStep{
			{do: func(e *blobEnv) error { return e.breaks(0) }},
			{do: func(e *blobEnv) error { return e.acquire(idB, 60) }},
			{do: func(e *blobEnv) error { return e.put("stale", withLease(idA)) }, want: blobLeaseMismatch},
			{do: func(e *blobEnv) error { return e.content("v1") }},
		}},
		{"a released lease is free for another at once", leased, []blobStep{
			{do: func(e *blobEnv) error { _, err := e.lease(idA).ReleaseLease(e.ctx, nil); return err }},
			{do: is(available)},
			{do: renewA, want: leaseMismatch},
			{do: func(e *blobEnv) error { return e.acquire(idB, 60) }},
		}},
		{"a changed lease answers to its new id only", leased, []blobStep{
			{do: func(e *blobEnv) error { _, err := e.lease(idA).ChangeLease(e.ctx, idB, nil); return err }},
			{do: func(e *blobEnv) error { _, err := e.lease(idA).ChangeLease(e.ctx, idB, nil); return err }}, // the answer was lost
			{do: renewA, want: leaseMismatch},
			{do: func(e *blobEnv) error { return e.put("v2", withLease(idA)) }, want: blobLeaseMismatch},
			{do: func(e *blobEnv) error { return e.put("v2", withLease(idB)) }},
		}},
		{"a breaking lease still guards, then frees", available, []blobStep{
			{do: func(e *blobEnv) error { return e.acquire(idA, -1) }},
			{do: func(e *blobEnv) error { return e.breaks(1) }},
			{do: func(e *blobEnv) error { return e.put("v2", nil) }, want: leaseIDMissing},
			{do: func(e *blobEnv) error { return e.put("v2", withLease(idA)) }},
			{do: func(e *blobEnv) error { return e.awaitState(broken) }},
			{do: func(e *blobEnv) error { return e.put("v3", nil) }},
		}},
		{"lease operations leave the ETag alone", available, []blobStep{
			{do: func(e *blobEnv) error { return e.acquire(idA, 60) }},
			{do: renewA},
			{do: func(e *blobEnv) error { return e.breaks(0) }},
			{do: func(e *blobEnv) error { return e.sameETag() }},
		}},
		{"a lease operation obeys conditions", available, []blobStep{
			{do: func(e *blobEnv) error {
				_, err := e.lease(idA).AcquireLease(e.ctx, 60, &lease.BlobAcquireOptions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: otherETag}})
				return err
			}, want: notMet},
			{do: func(e *blobEnv) error {
				_, err := e.lease(idA).AcquireLease(e.ctx, 60, &lease.BlobAcquireOptions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: e.etag}})
				return err
			}},
		}},
		{"a lease on a blob that does not exist", available, []blobStep{
			{do: func(e *blobEnv) error { return e.delete(nil) }},
			{do: func(e *blobEnv) error { return e.acquire(idA, 60) }, want: blobMissing},
			{do: func(e *blobEnv) error { return e.breaks(0) }, want: blobMissing},
		}},
		{"deleting a leased blob ends the lease", leased, []blobStep{
			{do: func(e *blobEnv) error { return e.delete(withLease(idA)) }},
			{do: func(e *blobEnv) error { return e.put("new", nil) }},
			{do: is(available)},
		}},
	}
}
