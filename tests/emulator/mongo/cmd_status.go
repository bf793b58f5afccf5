package mongo

import (
	"context"
	"os"
	"runtime"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/engine"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

// What administrators' tools ask. Sizes are those of the documents; nothing is on a disk.

func (r *request) adminOnly() error {
	if r.db != "admin" {
		return mongoerr.New(mongoerr.Unauthorized, "%s may only be run against the admin database.", r.name)
	}
	return nil
}

// scale returns the unit in which statistics are asked for.
func (r *request) scale() (int64, error) {
	n, err := r.int("scale", 1)
	if err == nil && n < 1 {
		err = mongoerr.New(51024, "BSON field 'scale' value must be >= 1, actual value '%d'", n)
	}
	return n, err
}

func runDBStats(_ context.Context, r *request) (bson.D, error) {
	scale, err := r.scale()
	if err != nil {
		return nil, err
	}
	collections, views, objects, indexes, size := 0, 0, 0, 0, 0
	for _, c := range r.srv.eng.Collections(r.db) {
		if c.View {
			views++
			continue
		}
		collections, objects, size, indexes = collections+1, objects+c.Count, size+c.Size, indexes+len(c.Indexes)+1
	}
	average := 0.0
	if objects > 0 {
		average = float64(size) / float64(objects)
	}
	unit := float64(scale)
	return bson.D{
		{Key: "db", Value: r.db},
		{Key: "collections", Value: int64(collections)},
		{Key: "views", Value: int64(views)},
		{Key: "objects", Value: int64(objects)},
		{Key: "avgObjSize", Value: average},
		{Key: "dataSize", Value: float64(size) / unit},
		{Key: "storageSize", Value: float64(size) / unit},
		{Key: "indexes", Value: int64(indexes)},
		{Key: "indexSize", Value: 0.0},
		{Key: "totalSize", Value: float64(size) / unit},
		{Key: "scaleFactor", Value: scale},
		{Key: "fsUsedSize", Value: 0.0},
		{Key: "fsTotalSize", Value: 0.0},
	}, nil
}

func runCollStats(_ context.Context, r *request) (bson.D, error) {
	ns, err := r.ns()
	if err != nil {
		return nil, err
	}
	scale, err := r.scale()
	if err != nil {
		return nil, err
	}
	return r.collStats(ns, scale)
}

// statistics puts what $collStats gives in its place: one document.
func (r *request) statistics(ns engine.NS, spec any, rest bson.A) (bson.A, error) {
	d := bson.D{{Key: "ns", Value: ns.String()}, {Key: "host", Value: r.srv.advertised()}, {Key: "localTime", Value: bson.NewDateTimeFromTime(time.Now())}}
	asked, _ := spec.(bson.D)
	for _, e := range asked {
		switch e.Key {
		case "count":
			info, _ := r.srv.eng.Lookup(ns)
			d = append(d, bson.E{Key: "count", Value: int32(info.Count)})
		case "storageStats":
			options, _ := e.Value.(bson.D)
			scale, _ := value.AsInt(field(options, "scale"))
			stats, err := r.collStats(ns, max(scale, 1))
			if err != nil {
				return nil, err
			}
			d = append(d, bson.E{Key: "storageStats", Value: stats[1:]}) // all but ns
		default:
			return nil, mongoerr.Unsupported("%s of $collStats", e.Key)
		}
	}
	return append(bson.A{bson.D{{Key: "$documents", Value: bson.A{bson.D{{Key: "$literal", Value: d}}}}}}, rest...), nil
}

func (r *request) collStats(ns engine.NS, scale int64) (bson.D, error) {
	c, _ := r.srv.eng.Lookup(ns)
	if c.View {
		return nil, mongoerr.New(mongoerr.ViewNotSupported, "Namespace %s is a view, not a collection", ns)
	}
	sizes := bson.D{{Key: "_id_", Value: int32(0)}}
	for _, ix := range c.Indexes {
		sizes = append(sizes, bson.E{Key: ix.Name, Value: int32(0)})
	}
	d := bson.D{
		{Key: "ns", Value: ns.String()}, {Key: "size", Value: int64(c.Size) / scale}, {Key: "count", Value: int32(c.Count)},
	}
	if c.Count > 0 {
		d = append(d, bson.E{Key: "avgObjSize", Value: int32(c.Size / c.Count)})
	}
	d = append(d, bson.D{
		{Key: "storageSize", Value: int64(c.Size) / scale},
		{Key: "freeStorageSize", Value: int64(0)},
		{Key: "capped", Value: c.Capped},
		{Key: "nindexes", Value: int32(len(sizes))},
		{Key: "indexBuilds", Value: bson.A{}},
		{Key: "totalIndexSize", Value: int64(0)},
		{Key: "totalSize", Value: int64(c.Size) / scale},
		{Key: "indexSizes", Value: sizes},
		{Key: "scaleFactor", Value: int32(scale)},
	}...)
	if c.Capped {
		d = append(d, bson.E{Key: "max", Value: field(c.Options, "max")}, bson.E{Key: "maxSize", Value: field(c.Options, "size")})
	}
	return d, nil
}

func runDataSize(_ context.Context, r *request) (bson.D, error) {
	full, _ := r.body[0].Value.(string)
	ns, err := parseNS(full)
	if err != nil {
		return nil, err
	}
	c, _ := r.srv.eng.Lookup(ns)
	return bson.D{{Key: "estimate", Value: false}, {Key: "size", Value: int64(c.Size)}, {Key: "numObjects", Value: int64(c.Count)}, {Key: "millis", Value: int64(0)}}, nil
}

func runValidate(_ context.Context, r *request) (bson.D, error) {
	ns, err := r.ns()
	if err != nil {
		return nil, err
	}
	c, ok := r.srv.eng.Lookup(ns)
	switch {
	case !ok:
		return nil, mongoerr.New(mongoerr.NamespaceNotFound, "Collection '%s' does not exist to validate.", ns)
	case c.View:
		return nil, mongoerr.New(mongoerr.ViewNotSupported, "Cannot validate a view")
	}
	keys := bson.D{{Key: "_id_", Value: int64(c.Count)}}
	details := bson.D{{Key: "_id_", Value: bson.D{{Key: "valid", Value: true}}}}
	for _, ix := range c.Indexes {
		keys = append(keys, bson.E{Key: ix.Name, Value: int64(c.Count)})
		details = append(details, bson.E{Key: ix.Name, Value: bson.D{{Key: "valid", Value: true}}})
	}
	return bson.D{
		{Key: "ns", Value: ns.String()},
		{Key: "uuid", Value: bson.Binary{Subtype: 4, Data: c.UUID}},
		{Key: "nInvalidDocuments", Value: int32(0)},
		{Key: "nNonCompliantDocuments", Value: int32(0)},
		{Key: "nrecords", Value: int32(c.Count)},
		{Key: "nIndexes", Value: int32(len(keys))},
		{Key: "keysPerIndex", Value: keys},
		{Key: "indexDetails", Value: details},
		{Key: "valid", Value: true},
		{Key: "repaired", Value: false},
		{Key: "warnings", Value: bson.A{}},
		{Key: "errors", Value: bson.A{}},
		{Key: "extraIndexEntries", Value: bson.A{}},
		{Key: "missingIndexEntries", Value: bson.A{}},
		{Key: "corruptRecords", Value: bson.A{}},
	}, nil
}

// configuration returns the configuration of a set of this one node.
func (s *Server) configuration() bson.D {
	return bson.D{
		{Key: "_id", Value: s.opts.ReplicaSet},
		{Key: "version", Value: int32(1)},
		{Key: "term", Value: int32(1)},
		{Key: "members", Value: bson.A{bson.D{
			{Key: "_id", Value: int32(0)},
			{Key: "host", Value: s.advertised()},
			{Key: "arbiterOnly", Value: false},
			{Key: "buildIndexes", Value: true},
			{Key: "hidden", Value: false},
			{Key: "priority", Value: 1.0},
			{Key: "tags", Value: bson.D{}},
			{Key: "secondaryDelaySecs", Value: int64(0)},
			{Key: "votes", Value: int32(1)},
		}}},
		{Key: "protocolVersion", Value: int64(1)},
		{Key: "writeConcernMajorityJournalDefault", Value: true},
		{Key: "settings", Value: bson.D{
			{Key: "chainingAllowed", Value: true},
			{Key: "heartbeatIntervalMillis", Value: int32(2000)},
			{Key: "heartbeatTimeoutSecs", Value: int32(10)},
			{Key: "electionTimeoutMillis", Value: int32(10000)},
			{Key: "getLastErrorModes", Value: bson.D{}},
		}},
	}
}

func runReplSetGetConfig(_ context.Context, r *request) (bson.D, error) {
	return bson.D{{Key: "config", Value: r.srv.configuration()}}, r.adminOnly()
}

func runReplSetGetStatus(_ context.Context, r *request) (bson.D, error) {
	if err := r.adminOnly(); err != nil {
		return nil, err
	}
	primary, _ := r.srv.primary()
	state, name := int32(2), "SECONDARY"
	if primary {
		state, name = 1, "PRIMARY"
	}
	now := r.srv.eng.Now()
	optime := bson.D{{Key: "ts", Value: now}, {Key: "t", Value: int64(1)}}
	date := time.Unix(int64(now.T), 0)
	return bson.D{
		{Key: "set", Value: r.srv.opts.ReplicaSet},
		{Key: "date", Value: time.Now()},
		{Key: "myState", Value: state},
		{Key: "term", Value: int64(1)},
		{Key: "heartbeatIntervalMillis", Value: int64(2000)},
		{Key: "majorityVoteCount", Value: int32(1)},
		{Key: "writeMajorityCount", Value: int32(1)},
		{Key: "votingMembersCount", Value: int32(1)},
		{Key: "writableVotingMembersCount", Value: int32(1)},
		{Key: "optimes", Value: bson.D{
			{Key: "lastCommittedOpTime", Value: optime},
			{Key: "lastCommittedWallTime", Value: date},
			{Key: "readConcernMajorityOpTime", Value: optime},
			{Key: "appliedOpTime", Value: optime},
			{Key: "durableOpTime", Value: optime},
			{Key: "lastAppliedWallTime", Value: date},
			{Key: "lastDurableWallTime", Value: date},
		}},
		{Key: "members", Value: bson.A{bson.D{
			{Key: "_id", Value: int32(0)},
			{Key: "name", Value: r.srv.advertised()},
			{Key: "health", Value: 1.0},
			{Key: "state", Value: state},
			{Key: "stateStr", Value: name},
			{Key: "uptime", Value: int32(time.Since(r.srv.started).Seconds())},
			{Key: "optime", Value: optime},
			{Key: "optimeDate", Value: date},
			{Key: "configVersion", Value: int32(1)},
			{Key: "configTerm", Value: int32(1)},
			{Key: "self", Value: true},
		}}},
	}, nil
}

func runConnectionStatus(_ context.Context, r *request) (bson.D, error) {
	info := bson.D{{Key: "authenticatedUsers", Value: bson.A{}}, {Key: "authenticatedUserRoles", Value: bson.A{}}}
	if r.flag("showPrivileges") {
		info = append(info, bson.E{Key: "authenticatedUserPrivileges", Value: bson.A{}})
	}
	return bson.D{{Key: "authInfo", Value: info}}, nil
}

func runHostInfo(_ context.Context, r *request) (bson.D, error) {
	name, err := os.Hostname()
	if err != nil {
		name = "localhost"
	}
	return bson.D{
		{Key: "system", Value: bson.D{
			{Key: "currentTime", Value: time.Now()},
			{Key: "hostname", Value: name},
			{Key: "cpuAddrSize", Value: int32(64)},
			{Key: "numCores", Value: int32(runtime.NumCPU())},
			{Key: "cpuArch", Value: runtime.GOARCH},
			{Key: "numaEnabled", Value: false},
		}},
		{Key: "os", Value: bson.D{{Key: "type", Value: runtime.GOOS}, {Key: "name", Value: runtime.GOOS}, {Key: "version", Value: ""}}},
		{Key: "extra", Value: bson.D{}},
	}, nil
}

// runProfile reports that the profiler is off, and refuses to switch it on.
func runProfile(_ context.Context, r *request) (bson.D, error) {
	level, ok := value.AsInt(r.body[0].Value)
	if !ok || level < -1 || level > 2 {
		return nil, mongoerr.New(mongoerr.BadValue, "Bad profile level: must be between -1 and 2")
	}
	if level > 0 {
		return nil, mongoerr.Unsupported("the profiler")
	}
	return bson.D{{Key: "was", Value: int32(0)}, {Key: "slowms", Value: int32(100)}, {Key: "sampleRate", Value: 1.0}}, nil
}

// runTop counts nothing: it lists the collections.
func runTop(_ context.Context, r *request) (bson.D, error) {
	if err := r.adminOnly(); err != nil {
		return nil, err
	}
	totals := bson.D{{Key: "note", Value: "all times in microseconds"}}
	none := bson.D{{Key: "time", Value: int64(0)}, {Key: "count", Value: int64(0)}}
	for _, c := range r.srv.eng.Collections("") {
		d := bson.D{}
		for _, kind := range []string{"total", "readLock", "writeLock", "queries", "getmore", "insert", "update", "remove", "commands"} {
			d = append(d, bson.E{Key: kind, Value: none})
		}
		totals = append(totals, bson.E{Key: c.NS.String(), Value: d})
	}
	return bson.D{{Key: "totals", Value: totals}}, nil
}

func runStartSession(context.Context, *request) (bson.D, error) {
	id := bson.D{{Key: "id", Value: bson.Binary{Subtype: 4, Data: engine.NewUUID()}}}
	return bson.D{{Key: "id", Value: id}, {Key: "timeoutMinutes", Value: int32(30)}}, nil
}

func runNothing(context.Context, *request) (bson.D, error) { return bson.D{}, nil }

func runWhatsMyURI(_ context.Context, r *request) (bson.D, error) {
	return bson.D{{Key: "you", Value: r.conn.net.RemoteAddr().String()}}, nil
}

func runGetLog(_ context.Context, r *request) (bson.D, error) {
	if err := r.adminOnly(); err != nil {
		return nil, err
	}
	switch r.body[0].Value {
	case "*":
		return bson.D{{Key: "names", Value: bson.A{"global", "startupWarnings"}}}, nil
	case "global", "startupWarnings":
		return bson.D{{Key: "totalLinesWritten", Value: int32(0)}, {Key: "log", Value: bson.A{}}}, nil
	}
	return nil, mongoerr.New(mongoerr.OperationFailed, "no RamLog named: %v", r.body[0].Value)
}

func runCmdLineOpts(_ context.Context, r *request) (bson.D, error) {
	return bson.D{{Key: "argv", Value: bson.A{"sluice-emulator"}}, {Key: "parsed", Value: bson.D{}}}, r.adminOnly()
}

func runListCommands(context.Context, *request) (bson.D, error) {
	names := make([]string, 0, len(commands))
	for name := range commands {
		names = append(names, name)
	}
	slices.Sort(names)
	d := bson.D{}
	for _, name := range names {
		d = append(d, bson.E{Key: name, Value: bson.D{
			{Key: "help", Value: ""}, {Key: "requiresAuth", Value: false}, {Key: "secondaryOk", Value: commands[name].anywhere}, {Key: "adminOnly", Value: false},
		}})
	}
	return bson.D{{Key: "commands", Value: d}}, nil
}

func runDefaultConcern(_ context.Context, r *request) (bson.D, error) {
	return bson.D{
		{Key: "defaultReadConcern", Value: bson.D{{Key: "level", Value: "local"}}},
		{Key: "defaultWriteConcern", Value: bson.D{{Key: "w", Value: "majority"}, {Key: "wtimeout", Value: int32(0)}}},
		{Key: "defaultWriteConcernSource", Value: "implicit"},
		{Key: "defaultReadConcernSource", Value: "implicit"},
		{Key: "localUpdateWallClockTime", Value: time.Now()},
	}, r.adminOnly()
}

// foreignCommands are those that a server knows and this one does not, so that a refusal can
// distinguish them.
var foreignCommands = fields(`abortReshardCollection applyOps appendOplogNote authenticate balancerStart balancerStatus balancerStop
	cleanupOrphaned clone cloneCollectionAsCapped compact convertToCapped createRole createSearchIndexes createUser dbHash dropConnections dropRole dropSearchIndex
	dropUser dropAllUsersFromDatabase enableSharding fsync fsyncUnlock getAuditConfig getShardMap grantRolesToUser isdbgrid killAllSessionsByPattern
	killOp listSearchIndexes listShards lockInfo logRotate mapReduce geoSearch moveChunk netstat planCacheClear planCacheListFilters planCacheSetFilter reIndex
	replSetAbortPrimaryCatchUp replSetFreeze replSetInitiate replSetMaintenance replSetReconfig replSetResizeOplog replSetSyncFrom resync revokeRolesFromUser
	rolesInfo rotateCertificates saslStart saslContinue setAuditConfig setClusterParameter getClusterParameter setDefaultRWConcern setFeatureCompatibilityVersion
	setIndexCommitQuorum setParameter setProfilingFilterGlobally shardCollection shutdown split splitVector updateRole updateUser updateSearchIndex usersInfo
	autoCompact analyze checkMetadataConsistency filemd5 getDiagnosticData validateDBMetadata
	connPoolStats connPoolSync dbCheck dropAllRolesFromDatabase flushRouterConfig getDatabaseVersion getLastError getnonce getShardVersion grantPrivilegesToRole
	grantRolesToRole invalidateUserCache mergeChunks planCacheClearFilters replSetStepUp revokePrivilegesFromRole revokeRolesFromRole setShardVersion
	setUserWriteBlockMode shardingState waitForFailPoint whatsmysni`)

func unknownCommand(name string) error {
	if slices.Contains(foreignCommands, name) {
		return mongoerr.New(mongoerr.CommandNotFound, "the embedded MongoDB does not support the command %s", name)
	}
	return mongoerr.New(mongoerr.CommandNotFound, "no such command: '%s'", name)
}
