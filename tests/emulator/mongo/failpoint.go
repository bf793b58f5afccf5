package mongo

import (
	"slices"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

// failpoints hold one point of each kind, as configureFailPoint sets them.
type failpoints struct {
	mu      sync.Mutex
	current *failpoint
	times   int64 // left; negative: without end
	skip    int64 // left
	losing  map[string]int

	transactional transactional
}

type failpoint struct {
	commands        []string
	code            int32
	labels          *[]string // given: replace the generated ones
	closeConnection bool
	concern         bson.D
	block           time.Duration
	app             string
	checkedOut      bool // strikes when a getMore has its cursor, which is when a server knows that it is a change stream's
}

func (f *failpoints) lose(command string, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.losing == nil {
		f.losing = map[string]int{}
	}
	f.losing[command] = n
}

func (f *failpoints) lost(command string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.losing[command] == 0 {
		return false
	}
	f.losing[command]--
	return true
}

// hit reports whether the fail point applies to this command, and counts.
func (f *failpoints) hit(r *request) *failpoint {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.current
	if p == nil || !p.names(r.name) || (p.app != "" && p.app != r.conn.app) {
		return nil
	}
	if f.skip > 0 {
		f.skip--
		return nil
	}
	if f.times == 0 {
		return nil
	}
	if f.times > 0 {
		f.times--
	}
	return p
}

// names reports whether the point is for a command. A server knows isMaster and ismaster as one.
func (p *failpoint) names(command string) bool {
	return slices.ContainsFunc(p.commands, func(name string) bool {
		return name == command || (strings.EqualFold(name, command) && strings.EqualFold(name, "isMaster"))
	})
}

func (f *failpoints) set(p *failpoint, times, skip int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.current, f.times, f.skip = p, times, skip
}

func (p *failpoint) concernLabels(r *request) []string {
	if p.labels != nil {
		return *p.labels
	}
	code, _ := value.Get(p.concern, "code")
	n, _ := value.AsInt(code)
	if r.numbered && (!r.multi || r.cmd.finishes) && slices.Contains(retriable, int32(n)) {
		return []string{"RetryableWriteError"}
	}
	return nil
}

func parseFailpoint(d bson.D) (*failpoint, error) {
	p := &failpoint{}
	for _, e := range d {
		n, isInt := value.AsInt(e.Value)
		var ok bool
		switch e.Key {
		case "failCommands":
			p.commands, ok = stringList(e.Value)
		case "errorCode":
			p.code, ok = int32(n), isInt
		case "errorLabels":
			var labels []string
			labels, ok = stringList(e.Value)
			p.labels = &labels
		case "closeConnection":
			p.closeConnection, ok = e.Value.(bool)
		case "writeConcernError":
			p.concern, ok = e.Value.(bson.D)
		case "blockConnection":
			_, ok = e.Value.(bool)
		case "blockTimeMS":
			p.block, ok = time.Duration(n)*time.Millisecond, isInt
		case "appName":
			p.app, ok = e.Value.(string)
		default:
			return nil, mongoerr.Unsupported("the failCommand option %q", e.Key)
		}
		if !ok {
			return nil, mongoerr.New(mongoerr.TypeMismatch, "failCommand option %q has the wrong type", e.Key)
		}
	}
	if block, _ := value.Get(d, "blockConnection"); block != true {
		p.block = 0
	}
	return p, nil
}

func stringList(v any) ([]string, bool) {
	list, ok := v.(bson.A)
	out := make([]string, 0, len(list))
	for _, item := range list {
		s, isString := item.(string)
		ok = ok && isString
		out = append(out, s)
	}
	return out, ok
}
