package mongo

import (
	"context"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// command is one row of the dispatch table.
type command struct {
	run       func(ctx context.Context, r *request) (bson.D, error)
	fields    []string // accepted beside the generic ones
	hello     bool     // part of the handshake: fields are not checked, OP_QUERY will do
	anywhere  bool     // also answered while stepped down
	write     bool     // needs a primary
	retryable bool     // takes a txnNumber without a transaction
	inTxn     bool     // may run in a transaction
	finishes  bool     // commits or aborts one
	snapshot  bool     // takes readConcern snapshot outside a transaction
	awaits    bool     // maxTimeMS is a time to wait, not a limit
}

func fields(s string) []string { return strings.Fields(s) }

// commands is the whole of what the server understands, sorted by name.
var commands map[string]*command

func init() {
	commands = map[string]*command{
		"abortTransaction":    {run: nil, fields: fields("recoveryToken"), write: true, finishes: true, inTxn: true},
		"aggregate":           {run: runAggregate, fields: fields("pipeline cursor allowDiskUse batchSize bypassDocumentValidation hint let collation explain"), inTxn: true, snapshot: true},
		"buildInfo":           {run: runBuildInfo, anywhere: true},
		"buildinfo":           {run: runBuildInfo, anywhere: true},
		"bulkWrite":           {run: runBulkWrite, fields: fields("ops nsInfo ordered errorsOnly cursor bypassDocumentValidation let"), write: true, retryable: true, inTxn: true},
		"collStats":           {run: runCollStats, fields: fields("scale"), anywhere: true},
		"connectionStatus":    {run: runConnectionStatus, fields: fields("showPrivileges"), anywhere: true},
		"currentOp":           {run: runCurrentOp, fields: fields("$all $ownOps"), anywhere: true},
		"dataSize":            {run: runDataSize, fields: fields("keyPattern min max estimate"), anywhere: true},
		"dbStats":             {run: runDBStats, fields: fields("scale freeStorage"), anywhere: true},
		"dbstats":             {run: runDBStats, fields: fields("scale freeStorage"), anywhere: true},
		"getCmdLineOpts":      {run: runCmdLineOpts, anywhere: true},
		"getDefaultRWConcern": {run: runDefaultConcern, fields: fields("inMemory"), anywhere: true},
		"getLog":              {run: runGetLog, anywhere: true},
		"hostInfo":            {run: runHostInfo, anywhere: true},
		"killSessions":        {run: runKillSessions, anywhere: true},
		"listCommands":        {run: runListCommands, anywhere: true},
		"logout":              {run: runNothing, anywhere: true},
		"profile":             {run: runProfile, fields: fields("slowms sampleRate filter"), anywhere: true},
		"refreshSessions":     {run: runNothing, anywhere: true},
		"replSetGetConfig":    {run: runReplSetGetConfig, fields: fields("commitmentStatus"), anywhere: true},
		"replSetGetStatus":    {run: runReplSetGetStatus, fields: fields("initialSync"), anywhere: true},
		"startSession":        {run: runStartSession, anywhere: true},
		"top":                 {run: runTop, anywhere: true},
		"validate":            {run: runValidate, fields: fields("full repair metadata checkBSONConformance"), anywhere: true},
		"whatsmyuri":          {run: runWhatsMyURI, anywhere: true},
		"collMod":             {run: runCollMod, fields: fields("changeStreamPreAndPostImages validator validationLevel validationAction index cappedSize cappedMax viewOn pipeline expireAfterSeconds timeseries"), write: true},
		"commitTransaction":   {run: nil, fields: fields("recoveryToken"), write: true, finishes: true, inTxn: true},
		"configureFailPoint":  {run: runConfigureFailPoint, fields: fields("mode data"), anywhere: true},
		"count":               {run: runCount, fields: fields("query limit skip hint collation")},
		"create":              {run: runCreate, fields: fields("changeStreamPreAndPostImages capped size max viewOn pipeline timeseries validator validationLevel validationAction collation clusteredIndex idIndex expireAfterSeconds encryptedFields"), write: true, inTxn: true},
		"createIndexes":       {run: runCreateIndexes, fields: fields("indexes commitQuorum"), write: true, inTxn: true},
		"delete":              {run: runDelete, fields: fields("deletes ordered let"), write: true, retryable: true, inTxn: true},
		"distinct":            {run: runDistinct, fields: fields("key query collation hint"), inTxn: true, snapshot: true},
		"drop":                {run: runDrop, write: true},
		"dropDatabase":        {run: runDropDatabase, write: true},
		"dropIndexes":         {run: runDropIndexes, fields: fields("index"), write: true},
		"endSessions":         {run: runEndSessions, anywhere: true},
		"explain":             {run: runExplain, fields: fields("verbosity"), anywhere: true},
		"find":                {run: runFind, fields: fields("filter sort projection hint skip limit batchSize singleBatch let collation allowDiskUse noCursorTimeout tailable awaitData oplogReplay returnKey showRecordId max min allowPartialResults"), inTxn: true, snapshot: true},
		"findAndModify":       {run: runFindAndModify, fields: fields("query sort remove update new fields upsert bypassDocumentValidation collation arrayFilters hint let"), write: true, retryable: true, inTxn: true},
		"findandmodify":       {run: runFindAndModify, fields: fields("query sort remove update new fields upsert bypassDocumentValidation collation arrayFilters hint let"), write: true, retryable: true, inTxn: true},
		"getMore":             {run: runGetMore, fields: fields("collection batchSize"), anywhere: true, inTxn: true, awaits: true, snapshot: true},
		"getParameter":        {run: runGetParameter, anywhere: true},
		"hello":               {run: runHello, hello: true, anywhere: true},
		"insert":              {run: runInsert, fields: fields("documents ordered bypassDocumentValidation"), write: true, retryable: true, inTxn: true},
		"isMaster":            {run: runHello, hello: true, anywhere: true},
		"ismaster":            {run: runHello, hello: true, anywhere: true},
		"killAllSessions":     {run: runKillAllSessions, anywhere: true},
		"killCursors":         {run: runKillCursors, fields: fields("cursors"), anywhere: true, inTxn: true},
		"listCollections":     {run: runListCollections, fields: fields("filter nameOnly cursor authorizedCollections")},
		"listDatabases":       {run: runListDatabases, fields: fields("filter nameOnly authorizedDatabases")},
		"listIndexes":         {run: runListIndexes, fields: fields("cursor")},
		"ping":                {run: runPing, anywhere: true},
		"renameCollection":    {run: runRename, fields: fields("to dropTarget"), write: true},
		"replSetStepDown":     {run: runStepDown, fields: fields("secondaryCatchUpPeriodSecs force"), anywhere: true},
		"serverStatus":        {run: runServerStatus, anywhere: true},
		"update":              {run: runUpdate, fields: fields("updates ordered let bypassDocumentValidation"), write: true, retryable: true, inTxn: true},
	}
}
