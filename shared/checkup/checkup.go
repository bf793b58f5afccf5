// Package checkup is how a service's doctor reports: one finding for each check, with what is wrong and how to fix it.
package checkup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/auth"

	"github.com/sluice-cdc/sluice/shared/terminal"
)

// Finding is the result of one check.
type Finding struct {
	Check string `json:"check"`
	OK    bool   `json:"ok"`
	// Says is what was found.
	Says string `json:"says"`
	// Mend is how to fix a problem.
	Mend string `json:"mend,omitempty"`
}

// Findings are the results so far, in order. The zero value is empty and ready to use.
type Findings []Finding

// OK adds a check that found all well.
func (f *Findings) OK(check, says string, args ...any) {
	*f = append(*f, Finding{Check: check, OK: true, Says: fmt.Sprintf(says, args...)})
}

// Problem adds a check that found something, and how to fix it.
func (f *Findings) Problem(check, mend, says string, args ...any) {
	*f = append(*f, Finding{Check: check, Says: fmt.Sprintf(says, args...), Mend: mend})
}

// Healthy says that no check found a problem.
func (f Findings) Healthy() bool {
	for _, one := range f {
		if !one.OK {
			return false
		}
	}
	return true
}

// Print writes one line a check, for people.
func (f Findings) Print(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, one := range f {
		if one.OK {
			fmt.Fprintf(w, "ok\t%s\t%s\n", one.Check, terminal.Printable(one.Says))
			continue
		}
		fmt.Fprintf(w, "PROBLEM\t%s\t%s. To fix it: %s\n", one.Check, terminal.Printable(one.Says), terminal.Printable(one.Mend))
	}
	_ = w.Flush()
}

// Mongo checks that a deployment answers, lets the user in, and is no standalone server; standalone says what that one
// lacks. False: there is no use in asking it anything else. setting names the connection string.
func (f *Findings) Mongo(ctx context.Context, client *mongo.Client, check, setting, standalone string) bool {
	var hello struct {
		SetName string `bson:"setName"`
		Msg     string `bson:"msg"`
	}
	err := client.Database("admin").RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&hello)
	// The driver's type, not a code: self-hosted servers say 18, Atlas says 8000.
	_, refused := errors.AsType[*auth.Error](err)
	switch {
	case refused:
		f.Problem(check, "check user, password and authSource in "+setting, "it does not accept the user")
	case err != nil:
		f.Problem(check, "check the hosts in "+setting+", the network, and the deployment's list of allowed addresses",
			"it does not answer: %v", err)
	case hello.SetName == "" && hello.Msg != "isdbgrid":
		f.Problem(check, "start it with --replSet and run rs.initiate() once; one member is enough",
			"it is a standalone server, which has no %s", standalone)
	case hello.Msg == "isdbgrid":
		f.OK(check, "it answers (a sharded cluster)")
		return true
	default:
		f.OK(check, "it answers (replica set %s)", hello.SetName)
		return true
	}
	return false
}
