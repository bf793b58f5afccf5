package checkup

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// The form is that of MongoDB's documentation of connectionStatus.
func TestTheUserThatIsSignedInIsNamed(t *testing.T) {
	t.Parallel()
	for users, want := range map[string]string{
		`[{"user": "producer-2", "db": "admin"}]`: `signed in as "producer-2" of the database "admin"`,
		`[]`: "the connection string names no user, and the server asks for none",
	} {
		var status connectionStatus
		answer := `{"authInfo": {"authenticatedUsers": ` + users + `, "authenticatedUserRoles": []}, "ok": 1}`
		require.NoError(t, bson.UnmarshalExtJSON([]byte(answer), false, &status))
		require.Equal(t, want, status.user())
	}
}
