package settings_test

import (
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/settings"
)

func TestCheckMongoURIQuotesNothingAndResolvesNothing(t *testing.T) {
	for _, uri := range []string{
		"mongodb://user:hunter2@db.example/?replicaSet=rs0", "mongodb+srv://user:hunter2@no-such-name.invalid/",
	} {
		require.NoError(t, settings.CheckMongoURI("MONGODB_URI", uri))
	}
	for _, uri := range []string{"hunter2", "https://hunter2", "mongodb://user:hunter2@db.example/?w=hunter2&ssl=hunter2"} {
		err := settings.CheckMongoURI("MONGODB_URI", uri)
		require.ErrorContains(t, err, "MONGODB_URI: is not")
		require.NotContains(t, err.Error(), "hunter2")
	}
	require.EqualError(t, settings.CheckMongoURI("MONGODB_URI", ""), "MONGODB_URI: is required and not set")
}

func TestFilesOfTLSThatCannotBeReadAreNamed(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty.pem")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	for query, want := range map[string]string{
		"tlsCAFile=" + url.PathEscape(dir+"/no ca.pem"): "MONGODB_URI: tlsCAFile names a file that cannot be read: open " + dir + "/no ca.pem: no such file",
		"tlscertificatekeyfile=" + dir + "/client.pem":  "MONGODB_URI: tlscertificatekeyfile names a file that cannot be read",
		"tlsCAFile=" + empty:                            "MONGODB_URI: tlsCAFile names the file " + empty + ", which holds no certificate in PEM",
	} {
		err := settings.CheckMongoURI("MONGODB_URI", "mongodb://user:hunter2@db.example/?tls=true&"+query)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "hunter2")
	}
}
