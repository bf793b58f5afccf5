//go:build !race || go1.27

package wire_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/emulator/wire"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// recorder records what clients send on the connections that it dials.
type recorder struct {
	way options.ContextDialer

	mu    sync.Mutex
	conns []*world.Recorder // guarded by mu
}

// connected returns what records a new connection.
func (r *recorder) connected() *world.Recorder {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conns = append(r.conns, &world.Recorder{})
	return r.conns[len(r.conns)-1]
}

func (r *recorder) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := r.way.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return recorded{c, r.connected()}, nil
}

type recorded struct {
	net.Conn
	sent *world.Recorder
}

func (c recorded) Write(b []byte) (int, error) {
	_, _ = c.sent.Write(b) // it never fails
	return c.Conn.Write(b)
}

// shape is a frame without what differs from one frame to the next: values by the paths to them.
type shape map[string]string

// shapes returns the shapes of all recorded frames by operation.
func (r *recorder) shapes(t *testing.T) map[string][]shape {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string][]shape{}
	for _, sent := range r.conns {
		frames, err := wire.Frames([]byte(sent.Text()))
		require.NoError(t, err)
		links := map[string]string{} // by channel and handle
		var continued bool
		for _, f := range frames {
			link := fmt.Sprint(f.Channel, "/", f.Fields["handle"])
			operation := f.Name
			s := shape{}
			switch f.Name {
			case "attach":
				links[link] = linkOf(f)
				operation += " " + links[link]
			case "transfer":
				more, _ := f.Fields["more"].(bool)
				if continued {
					continued = more
					continue
				}
				continued = more
				operation += " " + links[link]
				if !more {
					node := !strings.HasSuffix(links[link], "an entity")
					operation = strings.TrimSpace(operation + " " + s.message(t, "", f.Payload, node))
				} else {
					operation += " in parts"
				}
			case "flow", "detach":
				if _, of := f.Fields["handle"]; of {
					operation += " " + links[link]
				} else {
					operation += " of a session"
				}
			case "disposition":
				state, _ := f.Fields["state"].(wire.Described)
				operation += fmt.Sprintf(" %#x", state.Descriptor)
			}
			for name, v := range f.Fields {
				s.add(name, v)
			}
			out[operation] = append(out[operation], s)
		}
	}
	return out
}

// linkOf returns the purpose of a link.
func linkOf(f wire.Frame) string {
	end, way := "target", "sender to "
	if receives, _ := f.Fields["role"].(bool); receives {
		end, way = "source", "receiver from "
	}
	address := first(f.Fields[end])
	switch {
	case strings.HasSuffix(address, "/$management"):
		return way + "$management"
	case address == "$cbs":
		return way + address
	}
	source, _ := f.Fields["source"].(wire.Described)
	if fields, _ := source.Value.([]any); len(fields) > 7 && fields[7] != nil {
		return way + "a session of an entity"
	}
	return way + "an entity"
}

func first(terminus any) string {
	d, _ := terminus.(wire.Described)
	if list, _ := d.Value.([]any); len(list) > 0 {
		address, _ := list[0].(string)
		return address
	}
	return ""
}

// message adds the sections of a message, and returns the operation that it requests from a node.
// The application's part of a message for an entity is not compared.
func (s shape) message(t *testing.T, path string, b []byte, node bool) (operation string) {
	t.Helper()
	sections, err := wire.Sections(b)
	require.NoError(t, err)
	for _, section := range sections {
		code, _ := section.Descriptor.(uint64)
		name := path + map[uint64]string{
			0x70: "header", 0x71: "delivery-annotations", 0x72: "message-annotations", 0x73: "properties",
			0x74: "application-properties", 0x75: "data", 0x76: "sequence", 0x77: "value", 0x78: "footer",
		}[code]
		require.NotEqual(t, path, name, "section %#x", code)
		if code == 0x74 {
			if !node {
				continue
			}
			operation, _ = wire.StringMap(section.Value)["operation"].(string)
		}
		data, _ := section.Value.([]byte)
		if inner, err := wire.Sections(data); code == 0x75 && err == nil && len(inner) > 0 {
			s.message(t, name+".", data, node) // of a batch
			continue
		}
		s.add(name, section.Value)
	}
	return operation
}

// kept are the strings whose values are compared. Others differ by name, entity or chance.
var kept = []string{"application-properties.operation", "application-properties.type", "mechanism"}

// counted are the numbers whose values count something.
var counted = []string{
	"handle", "delivery-id", "first", "last", "next-incoming-id", "next-outgoing-id", "delivery-count", "link-credit",
	"incoming-window", "properties.com.microsoft:timeout", "application-properties.server-timeout", "header.ttl",
	"value.from-sequence-number", "value.message-count",
}

// compositeFields name the fields of composite values within frames and messages.
var compositeFields = map[string][]string{
	"source":          {"address", "durable", "expiry-policy", "timeout", "dynamic", "dynamic-node-properties", "distribution-mode", "filter", "default-outcome", "outcomes", "capabilities"},
	"target":          {"address", "durable", "expiry-policy", "timeout", "dynamic", "dynamic-node-properties", "capabilities"},
	"header":          {"durable", "priority", "ttl", "first-acquirer", "delivery-count"},
	"properties":      {"message-id", "user-id", "to", "subject", "reply-to", "correlation-id", "content-type", "content-encoding", "absolute-expiry-time", "creation-time", "group-id", "group-sequence", "reply-to-group-id"},
	"data.properties": {"message-id", "user-id", "to", "subject", "reply-to", "correlation-id", "content-type", "content-encoding", "absolute-expiry-time", "creation-time", "group-id", "group-sequence", "reply-to-group-id"},
	"state":           {"error"},
	"state.error":     {"condition", "description", "info"},
	"error":           {"condition", "description", "info"},
}

// add adds a value with its parts. Null counts as absent.
func (s shape) add(path string, v any) {
	switch v := v.(type) {
	case nil:
	case wire.Described:
		s[path+" is described by"] = fmt.Sprintf("%#x", v.Descriptor)
		if list, composite := v.Value.([]any); composite {
			s.add(path, list)
			return
		}
		s.add(path+" described", v.Value)
		if v.Value == nil {
			s[path+" described"] = "null"
		}
	case []any:
		for i, field := range v {
			name := fmt.Sprint(i)
			if names := compositeFields[path]; i < len(names) {
				name = names[i]
			}
			s.add(path+"."+name, field)
		}
	case map[any]any:
		for k, field := range v {
			s.add(fmt.Sprintf("%s.%s", path, k), field)
			s[fmt.Sprintf("%s.%s key", path, k)] = fmt.Sprintf("%T", k)
		}
	case string, []byte, time.Time, wire.UUID:
		s[path] = fmt.Sprintf("%T", v)
		if slices.Contains(kept, path) {
			s[path] = fmt.Sprint(v)
		}
	default:
		s[path] = fmt.Sprintf("%T %v", v, v)
		if slices.Contains(counted, path) {
			s[path] = fmt.Sprintf("%T", v)
		}
	}
}

// values returns the values of a path in the frames of an operation, such as "absent, bool true".
func values(all []shape, path string) string {
	seen := map[string]bool{}
	for _, s := range all {
		v, is := s[path]
		if !is {
			v = "absent"
		}
		seen[v] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(seen)), ", ")
}

// summary holds, by operation and path, the values of a client's frames.
type summary map[string]map[string]string

func summarize(all map[string][]shape) summary {
	out := summary{}
	for operation, frames := range all {
		out[operation] = map[string]string{}
		for _, s := range frames {
			for path := range s {
				out[operation][path] = values(frames, path)
			}
		}
	}
	return out
}

// compare returns how our frames differ from another client's, by operation and path.
func compare(theirs, ours summary) map[string]string {
	out := map[string]string{}
	for operation := range ours {
		if theirs[operation] == nil {
			out[operation] = "only ours"
			continue
		}
		for path, b := range ours[operation] {
			if a := cmp.Or(theirs[operation][path], "absent"); a != b {
				out[operation+": "+path] = fmt.Sprintf("theirs %s, ours %s", a, b)
			}
		}
		for path, a := range theirs[operation] {
			if ours[operation][path] == "" {
				out[operation+": "+path] = fmt.Sprintf("theirs %s, ours absent", a)
			}
		}
	}
	maps.DeleteFunc(out, func(what, _ string) bool {
		of, key := strings.CutSuffix(what, " key")
		return key && strings.Contains(out[of], "absent") // a key is absent with its value
	})
	return out
}

// Differences must have a reason. An operation that our code does not implement is not compared.
func TestOurFramesMatchTheOfficialClient(t *testing.T) {
	world.InVirtualTime(t, world.Options{Bus: servicebus.Options{Ask: 10 * time.Second}}, func(w *world.World) {
		theirs, ours := &recorder{way: w.BusNet}, &recorder{way: w.BusNet}
		official(w, theirs)
		own(w, ours)
		official, our := theirs.shapes(t), ours.shapes(t)
		for _, operation := range operations {
			require.NotEmpty(t, official[operation], "theirs: %s", operation)
			require.NotEmpty(t, our[operation], "ours: %s", operation)
		}
		found := compare(summarize(official), summarize(our))
		for _, what := range slices.Sorted(maps.Keys(found)) {
			if differences[what] == "" {
				t.Errorf("%s: %s, and there is no reason for it in the list", what, found[what])
			}
		}
		for _, what := range slices.Sorted(maps.Keys(differences)) {
			if found[what] == "" {
				t.Errorf("%s: listed as a difference, but equal", what)
			}
		}
	})
}

// official does with azservicebus what the services do with our code.
func official(w *world.World, r *recorder) {
	client, err := azservicebus.NewClientFromConnectionString(servicebus.ConnectionString("bus:5672"), world.BusOptions(r))
	require.NoError(w, err)
	sender, err := client.NewSender(world.Topic, nil)
	require.NoError(w, err)
	batch, err := sender.NewMessageBatch(w.Context(), nil)
	require.NoError(w, err)
	for _, id := range []string{"1", "2", "3"} {
		session, contentType := "theirs", "application/json"
		require.NoError(w, batch.AddMessage(&azservicebus.Message{
			Body: []byte(id), MessageID: &id, SessionID: &session, PartitionKey: &session, Subject: &id, ContentType: &contentType,
			ApplicationProperties: map[string]any{"epoch": int64(1)},
		}, nil))
	}
	require.NoError(w, sender.SendMessageBatch(w.Context(), batch, nil))
	require.NoError(w, sender.Close(w.Context()))
	session, err := client.AcceptNextSessionForSubscription(w.Context(), world.Topic, world.Subscription, nil)
	require.NoError(w, err)
	var got []*azservicebus.ReceivedMessage
	for len(got) < 3 {
		more, err := session.ReceiveMessages(w.Context(), 3-len(got), nil)
		require.NoError(w, err)
		got = append(got, more...)
	}
	why := "why"
	require.NoError(w, session.CompleteMessage(w.Context(), got[0], nil))
	require.NoError(w, session.DeadLetterMessage(w.Context(), got[1], &azservicebus.DeadLetterOptions{Reason: &why, ErrorDescription: &why}))
	require.NoError(w, session.CompleteMessage(w.Context(), got[2], nil))
	require.NoError(w, session.RenewSessionLock(w.Context(), nil))
	w.Pass(11 * time.Second) // flows with echo
	require.NoError(w, session.Close(w.Context()))
	letters, err := client.NewReceiverForSubscription(world.Topic, world.Subscription, &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter})
	require.NoError(w, err)
	_, err = letters.PeekMessages(w.Context(), 1, nil)
	require.NoError(w, err)
	require.NoError(w, client.Close(w.Context()))
}

// own runs a producer that sends and a projector that receives, completes, dead-letters, renews,
// peeks and ends.
func own(w *world.World, r *recorder) {
	sends := w.StartProducer("producer", func(_ *producer.Config, o *producer.Options) { o.ServiceBus = world.BusOptions(r) })
	receives := w.StartProjector(func(c *projector.Config, o *projector.Options) {
		c.SessionReceiver, c.Connections = "direct", 1
		o.ServiceBus = world.BusOptions(r)
	})
	w.Leads("producer")
	before := w.Bus.Stats(world.SubscriptionPath)
	for range 20 {
		w.Insert("ours")
		w.DelayMongo(1, world.LockDuration, "update") // the lock is renewed meanwhile
		w.Pass(2 * time.Second)
	}
	garbage, id := "garbage", "unreadable"
	require.NoError(w, w.Sender.SendMessage(w.Context(), &azservicebus.Message{
		Body: []byte("{"), MessageID: &id, SessionID: &garbage, PartitionKey: &garbage,
	}, nil))
	w.Eventually("all are settled", func() bool {
		now := w.Bus.Stats(world.SubscriptionPath)
		return now.Completed >= before.Completed+20 && now.DeadLettered > before.DeadLettered
	})
	w.Pass(2 * time.Minute)
	sends.End()
	_, err := receives.End()
	require.NoError(w, err)
}

// operations are all operations that our code implements; each must have been recorded for both.
var operations = []string{
	"sasl-init", "open", "begin",
	"attach sender to $cbs", "attach receiver from $cbs", "attach sender to $management", "attach receiver from $management",
	"attach sender to an entity", "attach receiver from a session of an entity",
	"flow receiver from $cbs", "flow receiver from $management", "flow receiver from a session of an entity", "flow of a session",
	"transfer sender to $cbs put-token", "transfer sender to an entity",
	"transfer sender to $management com.microsoft:renew-session-lock", "transfer sender to $management com.microsoft:peek-message",
	"disposition 0x24", "disposition 0x25",
	"detach receiver from a session of an entity", "end", "close",
}

// differences are the reasons why our frames differ from the official client's, by place.
var differences = map[string]string{
	"attach receiver from a session of an entity: properties.com.microsoft:timeout": timeoutReason,
	"open: properties.version": versionReason,
	"transfer sender to $management com.microsoft:peek-message: application-properties.associated-link-name": linkReason,
}

const (
	timeoutReason = "the Go client cannot state how long it waits for a session; .NET, Java, JavaScript and Python state it by this property, as a uint of milliseconds"
	versionReason = "a client describes itself; our user-agent names the version"
	linkReason    = "the peek is on a connection that has no receiver's link, and needs none"
)
