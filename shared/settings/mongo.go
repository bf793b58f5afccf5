package settings

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// CheckMongoURI returns nil for a MongoDB connection string. Otherwise the error names the setting,
// but not what is wrong with its value: the driver's text may quote the password. A mongodb+srv
// name is resolved when connecting, not here, so that a service starts even if DNS does not answer.
func CheckMongoURI(setting, uri string) error {
	if uri == "" {
		return fmt.Errorf("%s: is required and not set", setting)
	}
	if err := checkTLSFiles(setting, uri); err != nil {
		return err
	}
	if strings.HasPrefix(uri, "mongodb+srv://") || options.Client().ApplyURI(uri).Validate() == nil {
		return nil
	}
	return fmt.Errorf("%s: is not a MongoDB connection string (mongodb://… or mongodb+srv://…)", setting)
}

// checkTLSFiles returns nil unless a file with certificates that a connection string names cannot
// be read. The name is no secret.
func checkTLSFiles(setting, uri string) error {
	_, query, _ := strings.Cut(uri, "?")
	for option := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(option, "=")
		if !slices.ContainsFunc(tlsFiles, func(file string) bool { return strings.EqualFold(file, name) }) {
			continue
		}
		file, err := url.PathUnescape(value)
		if err != nil {
			continue // the driver refuses it
		}
		switch text, err := os.ReadFile(file); {
		case err != nil:
			return fmt.Errorf("%s: %s names a file that cannot be read: %w", setting, name, err)
		case !bytes.Contains(text, []byte("-----BEGIN ")):
			return fmt.Errorf("%s: %s names the file %s, which holds no certificate in PEM (-----BEGIN …)", setting, name, file)
		}
	}
	return nil
}

// tlsFiles are the options of a connection string that name a file.
var tlsFiles = []string{"tlsCAFile", "tlsCertificateKeyFile", "tlsCertificateFile", "tlsPrivateKeyFile", "sslCertificateAuthorityFile", "sslClientCertificateKeyFile"}

// MongoDatabase returns nil for a name that a database can have. Neither this error nor the one of
// [MongoCollection] quotes the value: it is often a connection string in the wrong place.
func MongoDatabase(setting, name string) error {
	switch {
	case name == "":
		return errors.New(setting + ": is required and not set")
	case len(name) > 63 || strings.ContainsAny(name, "/\\. \"$\x00"):
		return fmt.Errorf("%s: is not a name for a database: at most 63 bytes, and none of / \\ . \" $ and space", setting)
	}
	return nil
}

// MongoCollection returns nil for a name that a user's collection can have. An empty name would be
// worse than a wrong one: the driver would watch the whole database.
func MongoCollection(setting, name string) error {
	switch {
	case name == "":
		return errors.New(setting + ": is required and not set")
	case strings.HasPrefix(name, "system."):
		return fmt.Errorf("%s: what begins with system. belongs to MongoDB, which gives no changes of it", setting)
	case len(name) > 235 || strings.ContainsAny(name, "$\x00") || strings.HasPrefix(name, ".") || strings.HasSuffix(name, "."):
		return fmt.Errorf("%s: is not a name for a collection: at most 235 bytes, no $, and no . at its ends", setting)
	}
	return nil
}
