package operator

import (
	"net/http"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/stretchr/testify/require"
)

// Storage refuses a signature of another time like a wrong one; the Date of its response
// distinguishes them.
func TestARefusalByStorageNamesAClockThatIsOff(t *testing.T) {
	refusal := func(date time.Time) error {
		return &azcore.ResponseError{
			StatusCode: http.StatusForbidden, ErrorCode: "AuthenticationFailed",
			RawResponse: &http.Response{Header: http.Header{"Date": {date.UTC().Format(http.TimeFormat)}}},
		}
	}
	problem, fix := explainBlob(refusal(time.Now().Add(20*time.Minute + 500*time.Millisecond)))
	require.Regexp(t, `^storage answered 403 AuthenticationFailed: this machine's clock is (19m59|20m0)s behind the service's$`, problem)
	require.Contains(t, fix, "set this machine's clock")

	problem, fix = explainBlob(refusal(time.Now()))
	require.Equal(t, "storage answered 403 AuthenticationFailed", problem)
	require.Contains(t, fix, "Storage Blob Data Contributor")
}
