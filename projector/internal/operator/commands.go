package operator

import (
	"context"
	"errors"
	"flag"
	"time"

	"github.com/sluice-cdc/sluice/shared/commandline"
	"github.com/sluice-cdc/sluice/shared/console"
)

// Command is one command of the program. Without a Do it needs no [Projector]: run, and help.
type Command = commandline.Command[*Projector, Request]

// Request is a parsed command line.
type Request struct {
	aggregate string
	others    []string // of repair: the aggregates behind the first
	repair    bool     // of verify
	json      bool
	wide      bool
	log       bool          // of status
	drained   bool          // of status
	sample    int64         // of verify
	inMemory  int64         // of verify
	wait      time.Duration // for a session, or for a difference to disappear
	all       bool
	message   string // of drop: the id of the message that the operator has seen
	overtaken bool   // of drop: of all aggregates
	count     int    // of drop: how many events the operator has examined
	yes       bool
	reason    string // of park

	console  console.Options
	readOnly bool // of console

	chunk, rate  int64           // of build
	parallel     int             // of build
	skip         map[string]bool // of build: the documents that are left out
	acceptFailed bool            // of build

	name    string // of switch and drop
	version int    // the same
	force   bool   // of switch
	// unsubscribed is the operator's word, of drop, that the subscription is deleted.
	unsubscribed bool
}

// Program returns the program with all commands; name is the name with which it is started.
func Program(name string) commandline.Program[*Projector, Request] {
	all := []Command{{Name: "run", Summary: "receive and apply (also without a command)"}, statusCommand(), consoleCommand(name)}
	all = append(all, parkedCommands(name)...)
	return commandline.Program[*Projector, Request]{Name: name, Commands: append(all, buildCommand(), switchCommand(), dropCommand(), repairCommand(name), verifyCommand(), doctorCommand(), checkCommand())}
}

func statusCommand() Command {
	return Command{
		Name: "status", Takes: "[--log | --drained] [--json]",
		Summary: "what is applied, parked, waiting and dead-lettered, from MongoDB and Service Bus",
		Flags: func(f *flag.FlagSet, r *Request) {
			asJSON(f, r)
			f.BoolVar(&r.log, "log", false, "write parked aggregates, waiting sessions and dead letters as one record of the log")
			f.BoolVar(&r.drained, "drained", false, "fail unless nothing waits, is dead-lettered or parked: the entity can then be deleted")
		},
		Do: func(ctx context.Context, p *Projector, r Request) error {
			switch {
			case r.log:
				return p.Watch(ctx)
			case r.drained:
				return p.Drained(ctx, r.json)
			}
			status, err := p.Status(ctx)
			return errors.Join(commandline.Show(p.Out, r.json, status), err)
		},
	}
}

func doctorCommand() Command {
	return Command{
		Name: "doctor", Takes: "[--json]",
		Summary: "check every setting and permission against the services",
		Flags:   asJSON,
		Do: func(ctx context.Context, p *Projector, r Request) error {
			return commandline.Diagnose(p.Out, r.json, p.Doctor(ctx))
		},
	}
}

func asJSON(f *flag.FlagSet, r *Request) { f.BoolVar(&r.json, "json", false, "as JSON") }
