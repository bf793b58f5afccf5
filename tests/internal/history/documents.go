package history

import "fmt"

// Documents are the documents of a collection by their _id, each as a hash of its bytes. The zero
// value is empty and ready to use.
type Documents struct {
	order []document
	by    map[string][32]byte
}

type document struct{ aggregate, id string }

// Add adds a document.
func (d *Documents) Add(aggregate, id string, hash [32]byte) {
	if d.by == nil {
		d.by = map[string][32]byte{}
	}
	d.order = append(d.order, document{aggregate, id})
	d.by[id] = hash
}

// Len returns the number of documents.
func (d *Documents) Len() int { return len(d.order) }

// explained is how many differing documents are described in detail.
const explained = 10

// CompareDocuments compares a copy of a collection with the collection, document by document. Lost
// counts the documents that the copy lacks, Doubled those that it should not have; an aggregate is
// right if all its documents are. explain describes how a document that is in both differs; it is
// called for the first few, and may be nil.
func CompareDocuments(expected, actual *Documents, explain func(id string) string) Comparison {
	c := Comparison{}
	wrong := map[string]bool{} // by aggregate; every aggregate has an entry
	differ := func(d document, how string) {
		wrong[d.aggregate] = true
		c.Differences = append(c.Differences, fmt.Sprintf("%s: document %s %s", d.aggregate, d.id, how))
	}
	for _, d := range expected.order {
		if _, known := wrong[d.aggregate]; !known {
			wrong[d.aggregate] = false
			c.Aggregates++
		}
		switch hash, there := actual.by[d.id]; {
		case !there:
			c.Lost++
			differ(d, "is missing")
		case hash != expected.by[d.id]:
			how := "differs from its source"
			if explain != nil && len(c.Differences) < explained {
				how = explain(d.id)
			}
			differ(d, how)
		}
	}
	for _, d := range actual.order {
		if _, wanted := expected.by[d.id]; !wanted {
			c.Doubled++
			c.Unexpected++
			differ(d, "should not be there")
		}
	}
	for _, isWrong := range wrong { // what is not wrong is expected
		if isWrong {
			c.Mismatches++
		} else {
			c.Right++
		}
	}
	return c
}
