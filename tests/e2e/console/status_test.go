package console

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/console"
	"github.com/sluice-cdc/sluice/tests/internal/browser"
)

// Every value of /status is on a page, and in the text that a person reads. Each field has a value
// of its own, so that one which is not shown is not taken for another.
func TestEveryValueOfStatusIsShown(t *testing.T) {
	p := browser.Open(t)
	var view atomic.Pointer[console.View]
	n := int64(100)
	show := func(change func(*console.View)) {
		v := &console.View{}
		fill(reflect.ValueOf(v).Elem(), &n)
		v.Streams[0].HeadroomSeconds = new(int64(99)) // from 120 on it is shown in minutes
		change(v)
		view.Store(v)
	}
	show(func(v *console.View) {
		v.Run.Verdict = "" // then the run's counts are shown
		v.Run.Failovers[0].Epoch = v.Streams[0].Epoch
	})
	first := view.Load()
	server := serve(t, console.New(console.Home{Title: "test", View: func(context.Context) console.View { return *view.Load() }}))
	shown := func() (all map[string]any, missing []string) {
		p.Go(server.URL + "/")
		p.Until("the page shows this View", fmt.Sprintf(`document.querySelector("[data-epoch]")?.textContent === "%d"`, view.Load().Streams[0].Epoch))
		var text, page, status string
		for _, path := range []string{"", "leadership", "parked", "streams", "builds"} {
			p.Go(server.URL + "/" + path)
			p.Do(`document.querySelectorAll("details").forEach((d) => d.open = true), document.body.innerText`, &page)
			text += page + "\n"
		}
		p.Do(`(async () => (await fetch("/status")).text())()`, &status)
		require.NoError(t, json.Unmarshal([]byte(status), &all))
		for path, value := range leaves("", all) {
			if !isShown(text, path, value) {
				missing = append(missing, path)
			}
		}
		slices.Sort(missing)
		return all, missing
	}
	_, missing := shown()
	require.Equal(t, []string{
		".run.failovers[0].kind", ".run.summary", // when the term and the run have ended
		".streams[0].heartbeat_age_ms", ".streams[0].oplog_headroom_note", // shown if what is better is unknown
	}, missing)

	// The result, a leader that another process sees, and the term that has ended.
	show(func(v *console.View) {
		v.Streams[0].Name, v.Run.Failovers = first.Streams[0].Name, first.Run.Failovers
		v.Streams[0].FenceMarginMS, v.Streams[0].HeadroomSeconds = nil, nil
	})
	_, missing = shown()
	require.Equal(t, []string{".run.applied", ".run.elapsed_ns", ".run.total", ".run.waiting"}, missing, "of a run that has ended")
}

// fill gives each field a value of its own.
func fill(v reflect.Value, n *int64) {
	*n++
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Unix(1_700_000_000+*n, 0).UTC()))
		return
	case time.Duration:
		v.SetInt(*n * int64(time.Second))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for _, field := range v.Fields() {
			fill(field, n)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), n)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, n)
		fill(value, n)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Int64:
		v.SetInt(*n)
	case reflect.Float64:
		v.SetFloat(float64(*n))
	case reflect.String:
		v.SetString(fmt.Sprintf("text-%d", *n))
	case reflect.Bool:
		v.SetBool(true)
	default:
		panic("a kind of value that the test does not know: " + v.Type().String())
	}
}

// leaves returns the values of a JSON document by their path.
func leaves(path string, value any) map[string]any {
	found := map[string]any{}
	switch value := value.(type) {
	case map[string]any:
		for key, of := range value {
			maps.Copy(found, leaves(path+"."+key, of))
		}
	case []any:
		for i, of := range value {
			maps.Copy(found, leaves(fmt.Sprintf("%s[%d]", path, i), of))
		}
	case nil, bool: // unknown; shown as a colour
	default:
		found[path] = value
	}
	return found
}

// isShown reports whether a text has a value, in any of the forms of the pages.
func isShown(text, path string, value any) bool {
	switch value := value.(type) {
	case float64:
		if strings.HasSuffix(path, "_ns") {
			value /= float64(time.Second)
		}
		return regexp.MustCompile(fmt.Sprintf(`(?m)(^|[^-\d.,])%.0f(\.0)?($|[^\d.,])`, value)).MatchString(text)
	case string:
		if at, err := time.Parse(time.RFC3339, value); err == nil {
			return strings.Contains(text, value) || strings.Contains(text, at.Format("15:04:05"))
		}
		return regexp.MustCompile(regexp.QuoteMeta(value) + `($|\D)`).MatchString(text)
	}
	return false
}

// A build and a snapshot show how fast they are, and how long the snapshot takes.
func TestABuildInProgress(t *testing.T) {
	p := browser.Open(t)
	began := time.Now()
	server := serve(t, console.New(console.Home{Title: "test", View: func(context.Context) console.View {
		n := int64(time.Since(began).Milliseconds())
		return console.View{
			Streams: []console.Stream{{
				Name: "shop.orders", Leader: "producer-1", Epoch: 3, Published: &n,
				Snapshot: &console.Progress{State: "initial", Done: 4 * n, Total: 2_000_000, Unit: "documents", BeganAt: began},
			}},
			Projections: []console.Projection{{
				Name: "timeline", Database: "readmodel", Views: map[string]string{"orders": "orders_2"},
				Build: &console.Progress{State: "building", Done: 20 * n, Unit: "events", Ranges: n / 100, Groups: 3 * n, ChangedAt: time.Now()},
			}},
		}
	}}))
	p.Go(server.URL + "/builds")
	p.Until("both have a rate, and one a time to go", `(() => {
		const text = document.querySelector("[data-region=builds]").innerText;
		return /rate\s+(19|20),\d{3} a second\n/.test(text) && /rate\s+(3,9|4,0)\d\d a second, about \d+ min to go/.test(text);
	})()`)
	inspect(t, p, "building")
	require.Empty(t, p.Complaints(), "the browser has nothing to complain of")
}
