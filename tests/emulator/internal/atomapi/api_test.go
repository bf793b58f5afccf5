package atomapi

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/virtualtime"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/broker"
)

// queues is the administration of an empty namespace; put requests a queue with the properties.
type queues struct{ http.Handler }

func newQueues(t *testing.T) queues {
	t.Helper()
	b, err := broker.New(broker.Config{})
	require.NoError(t, err)
	return queues{New(b, broker.Config{}, "n", false).Handler(func(*http.Request) (bool, error) { return true, nil })}
}

func (q queues) do(method, path, properties string) (int, string) {
	body := `<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">` +
		`<QueueDescription xmlns="` + nsConnect + `">` + properties + `</QueueDescription></content></entry>`
	w := httptest.NewRecorder()
	q.ServeHTTP(w, httptest.NewRequest(method, path+"?api-version=2021-05", strings.NewReader(body)))
	return w.Code, w.Body.String()
}

func TestUnsupportedFeaturesAreRefusedByName(t *testing.T) {
	q := newQueues(t)
	for _, name := range []string{"EnableExpress", "EnableSubscriptionPartitioning", "FilteringMessagesBeforePublishing", "IsAnonymousAccessible"} {
		status, text := q.do(http.MethodPut, "/q", "<"+name+">true</"+name+">")
		require.Equal(t, http.StatusBadRequest, status)
		require.Contains(t, text, name+" is not supported")
	}
	status, _ := q.do(http.MethodPut, "/q", "<EnableExpress>false</EnableExpress>")
	require.Equal(t, http.StatusCreated, status)
}

// JavaScript's client fails without these two properties, does not decode apostrophes, and finds
// the counts by the prefix that the enclosing element declares.
func TestAnswersAreReadableByJavaScript(t *testing.T) {
	q := newQueues(t)
	status, text := q.do(http.MethodPut, "/q", "<UserMetadata>it's \"mine\" &amp; &lt;yours&gt;</UserMetadata>")
	require.Equal(t, http.StatusCreated, status)
	for _, part := range []string{
		"<EntityAvailabilityStatus>Available</EntityAvailabilityStatus>", "<EnableExpress>false</EnableExpress>",
		`<CountDetails xmlns:d2p1="` + nsCounts + `"><d2p1:ActiveMessageCount>0</d2p1:ActiveMessageCount><d2p1:Dead`,
		"<UserMetadata>it's &quot;mine&quot; &amp; &lt;yours&gt;</UserMetadata>",
	} {
		require.Contains(t, text, part)
	}
}

// An entity that was deleted because it was idle can be created again.
func TestIdleEntitiesAreGoneFromTheAdministration(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		q := newQueues(t)
		do := func(method, path, idle string) (int, string) {
			return q.do(method, path, "<AutoDeleteOnIdle>"+idle+"</AutoDeleteOnIdle>")
		}
		status, text := do(http.MethodPut, "/q", "PT1M")
		require.Equal(t, http.StatusBadRequest, status)
		require.Contains(t, text, "less than 5m0s")
		status, _ = do(http.MethodPut, "/q", "PT5M")
		require.Equal(t, http.StatusCreated, status)
		time.Sleep(5*time.Minute - time.Nanosecond)
		status, text = do(http.MethodGet, "/q", "")
		require.Equal(t, http.StatusOK, status)
		require.Contains(t, text, "<AutoDeleteOnIdle>PT5M</AutoDeleteOnIdle>")
		time.Sleep(time.Nanosecond)
		_, text = do(http.MethodGet, "/$Resources/Queues", "")
		require.NotContains(t, text, "QueueDescription")
		status, _ = do(http.MethodPut, "/q", "PT5M")
		require.Equal(t, http.StatusCreated, status)
	})
}
