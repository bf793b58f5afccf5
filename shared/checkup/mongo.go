package checkup

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/auth"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"github.com/sluice-cdc/sluice/shared/mongodb"
)

// Mongo checks that a deployment answers, accepts the user, and is not a standalone server.
// standalone names what a standalone server lacks. It returns false if further checks of the
// deployment are pointless. setting is the name of the setting with the connection string.
func (f *Findings) Mongo(ctx context.Context, client *mongo.Client, check, setting, standalone string) bool {
	if err := ping(ctx, client); err != nil {
		problem, remedy := ExplainMongo(err, setting)
		f.Problem(check, remedy, "%s", problem)
		return false
	}
	roundTrip := Fastest(func() error { return ping(ctx, client) })
	who, err := mongodb.Identify(ctx, client)
	switch {
	case err != nil: // it answered the ping
		f.OK(check, "it answers, in %s; its kind is unknown", roundTrip)
	case who.Sharded():
		f.OK(check, "it answers, in %s (a sharded cluster)", roundTrip)
	case who.SetName != "":
		f.OK(check, "it answers, in %s (replica set %s)", roundTrip, who.SetName)
	default:
		f.Problem(check, "start it with --replSet and run rs.initiate() once; one member is enough",
			"it is a standalone server, which has no %s", standalone)
		return false
	}
	var status connectionStatus
	if client.Database("admin").RunCommand(ctx, bson.D{{Key: "connectionStatus", Value: 1}}).Decode(&status) == nil {
		f.OK(check+" user", "%s", status.user())
	}
	return true
}

// connectionStatus is MongoDB's answer to the question who is signed in on a connection.
type connectionStatus struct {
	AuthInfo struct {
		AuthenticatedUsers []struct {
			User string `bson:"user"`
			DB   string `bson:"db"`
		} `bson:"authenticatedUsers"`
	} `bson:"authInfo"`
}

// user names who is signed in. After the rotation of a password or a user it proves which one is in
// use.
func (s connectionStatus) user() string {
	users := s.AuthInfo.AuthenticatedUsers
	if len(users) == 0 {
		return "the connection string names no user, and the server asks for none"
	}
	return fmt.Sprintf("signed in as %q of the database %q", users[0].User, users[0].DB)
}

func ping(ctx context.Context, client *mongo.Client) error {
	return client.Database("admin").RunCommand(ctx, bson.D{{Key: "ping", Value: 1}}).Err()
}

// Fastest returns the shortest of three round trips: the longer ones measure other load as well.
func Fastest(roundTrip func() error) time.Duration {
	var best time.Duration
	for range 3 {
		began := time.Now()
		if roundTrip() != nil {
			continue
		}
		if took := time.Since(began); best == 0 || took < best {
			best = took
		}
	}
	return best.Round(10 * time.Microsecond)
}

// ExplainMongo describes why MongoDB could not be reached, and returns the remedy. setting is the
// name of the setting with the connection string. Neither text contains a secret.
func ExplainMongo(err error, setting string) (problem, remedy string) {
	if selection, ok := errors.AsType[topology.ServerSelectionError](err); ok {
		var silent error
		for _, server := range selection.Desc.Servers {
			if server.LastError == nil && server.Kind != 0 {
				return "it answers, and has no primary at the moment", "wait for the election to end; if it lasts, see rs.status(): a majority of the members must be up"
			}
			switch failed := server.LastError; {
			case failed == nil:
			case silent == nil:
				silent = fmt.Errorf("%s: %w", server.Addr, failed)
			default: // on the same line
				silent = fmt.Errorf("%w; %s: %w", silent, server.Addr, failed)
			}
		}
		if silent != nil {
			err = silent
		} else if len(selection.Desc.Servers) == 0 {
			return "no host of the connection string belongs to the replica set that it names", "check replicaSet and the hosts in " + setting
		}
	}
	// The driver's type, not a code: self-hosted servers answer 18, Atlas answers 8000.
	if _, refused := errors.AsType[*auth.Error](err); refused || mongodb.HasCode(err, mongodb.AuthenticationFailed) {
		return "it does not accept the user", "check user, password and authSource in " + setting
	}
	var (
		unnamed     *net.DNSError
		authority   x509.UnknownAuthorityError
		hostname    x509.HostnameError
		certificate *tls.CertificateVerificationError
		plain       tls.RecordHeaderError
		alert       tls.AlertError
	)
	switch {
	case errors.As(err, &unnamed):
		return fmt.Sprintf("there is no host %q", unnamed.Name),
			"check the hosts in " + setting + ", and the DNS; a user or password with @, : or / is percent-encoded there (%40, %3A, %2F)"
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Sprintf("nothing listens there: %v", err), "check host and port in " + setting + ", and that MongoDB runs"
	case errors.As(err, &authority), errors.As(err, &hostname), errors.As(err, &certificate):
		return fmt.Sprintf("its certificate is not accepted: %v", err), "check tls and tlsCAFile in " + setting + ", and the host names in it"
	case errors.As(err, &plain):
		return fmt.Sprintf("it does not speak TLS: %v", err), "take tls=true out of " + setting + ", or name a server that has TLS"
	case errors.As(err, &alert):
		return fmt.Sprintf("it refuses this client's TLS: %v", err), "check tlsCertificateKeyFile in " + setting + ": the certificate that the server wants of its clients"
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		// The driver's error of a connection that had been opened, with TLS if it was asked for.
		if _, opened := errors.AsType[topology.ConnectionError](err); !opened {
			return fmt.Sprintf("it does not speak TLS: it closes the connection when TLS begins: %v", err),
				"take tls=true out of " + setting + ", or name a server that has TLS"
		}
		return fmt.Sprintf("it closes every connection at once, as a server does that requires TLS or a client's certificate: %v", err),
			"set tls=true in " + setting + ", with tlsCAFile where its certificate is of an authority of your own; where that is set, " +
				"tlsCertificateKeyFile too: the client's certificate with its key"
	}
	if server, ok := errors.AsType[mongo.ServerError](err); ok {
		return fmt.Sprintf("it answers with an error: %v", server), "read the error; check the user's roles"
	}
	return fmt.Sprintf("it does not answer: %v", err), "check the hosts in " + setting + ", the network, and the deployment's list of allowed addresses"
}
