package engine

import (
	"strings"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
)

// maxNamespace is the length of the longest name of a collection with its database's, in bytes.
const maxNamespace = 255

// CheckName refuses the names that a server refuses, of collections to be written to.
func CheckName(ns NS) error { return checkName(ns) }

// checkName refuses namespaces a server refuses.
func checkName(ns NS) error {
	if len(ns.String()) > maxNamespace {
		return mongoerr.New(mongoerr.InvalidNamespace, "Fully qualified namespace is too long. Namespace: %s Max: %d", ns, maxNamespace)
	}
	if ns.DB == "" || strings.ContainsAny(ns.DB, "/\\. \"$\x00") || len(ns.DB) > 63 {
		return mongoerr.New(mongoerr.InvalidNamespace, "Invalid database name: '%s'", ns.DB)
	}
	if ns.DB == "local" && strings.HasPrefix(ns.Coll, "oplog.") {
		return mongoerr.New(mongoerr.InvalidNamespace, "cannot write to '%s'", ns)
	}
	if ns.Coll == "" || strings.ContainsAny(ns.Coll, "$\x00") || strings.HasPrefix(ns.Coll, ".") || strings.HasPrefix(ns.Coll, "system.") {
		return mongoerr.New(mongoerr.InvalidNamespace, "Invalid collection name: %s", ns.Coll)
	}
	return nil
}
