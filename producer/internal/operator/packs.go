package operator

import (
	"context"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/shared/azure"
	"github.com/sluice-cdc/sluice/shared/commandline"
	"github.com/sluice-cdc/sluice/shared/terminal"
)

// packsCommands decide whether a leader may send packs.
func packsCommands() []Command {
	return []Command{
		{
			Name: "packs on", Takes: "--readers-know [--rules-checked]",
			Summary: "let leaders with PACK=auto put several events of a session into one message",
			Flags: func(f *flag.FlagSet, r *Request) {
				f.BoolVar(&r.packs.ReadersKnow, "readers-know", false, "confirm that every subscriber has a version that knows packs")
				f.BoolVar(&r.packs.RulesChecked, "rules-checked", false, "confirm that no subscription has a rule, if the administration cannot be asked")
			},
			Do: func(ctx context.Context, s *Stream, r Request) error { return s.PacksOn(ctx, r.packs) },
		},
		{
			Name: "packs off", Summary: "let no leader send packs; those that wait stay as they are",
			Do: func(ctx context.Context, s *Stream, _ Request) error { return s.setPacks(ctx, false) },
		},
		{
			Name: "packs status", Summary: "whether leaders with PACK=auto send packs, and who decided it",
			Do: func(ctx context.Context, s *Stream, r Request) error {
				limited, cancel := s.withTimeout(ctx)
				defer cancel()
				p, _, err := s.checkpoint().Packs(limited)
				if err != nil {
					return err
				}
				return commandline.Show(s.Out, r.JSON, packsReport(p))
			},
		},
	}
}

// packsReport is what `packs status` prints.
type packsReport checkpoint.Packs

// Print writes the report for people.
func (r packsReport) Print(out io.Writer) {
	switch {
	case r.At.IsZero():
		fmt.Fprintf(out, "stream %s: off\n", terminal.Printable(r.Stream))
	case r.On:
		fmt.Fprintf(out, "stream %s: on since %s, by %s\n", terminal.Printable(r.Stream), r.At.Format(time.RFC3339), terminal.Printable(r.By))
	default:
		fmt.Fprintf(out, "stream %s: off since %s, by %s\n", terminal.Printable(r.Stream), r.At.Format(time.RFC3339), terminal.Printable(r.By))
	}
}

// PacksOptions are the confirmations of an operator who lets leaders send packs.
type PacksOptions struct{ ReadersKnow, RulesChecked bool }

// PacksOn lets leaders send packs. Errors: [ErrRefused], or the services'.
func (s *Stream) PacksOn(ctx context.Context, o PacksOptions) error {
	if !o.ReadersKnow {
		return fmt.Errorf("%w: readers must know packs: a projector of an earlier version leaves them in the queue or dead-letters them. "+
			"Deploy a version that knows packs to all subscribers first, and then give --readers-know", ErrRefused)
	}
	rule, err := s.Entity.rule(ctx)
	switch {
	case err != nil && !o.RulesChecked:
		return fmt.Errorf("%w: the rules of the subscriptions cannot be read: %s. A rule that selects by a property of an event would drop packs "+
			"without a trace. Check that no subscription has one, then give --rules-checked", ErrRefused, azure.WhyUnanswered(err))
	case rule != "":
		return fmt.Errorf("%w: %s is not the true filter. It sees the properties of a pack and not those of its events, and would drop packs "+
			"without a trace: remove the rule first", ErrRefused, rule)
	}
	return s.setPacks(ctx, true)
}

func (s *Stream) setPacks(ctx context.Context, on bool) error {
	limited, cancel := s.withTimeout(ctx)
	defer cancel()
	present, err := s.read(limited)
	if err != nil {
		return err
	}
	before, tag, err := s.checkpoint().Packs(limited)
	if err != nil {
		return err
	}
	if err := s.checkpoint().WritePacks(limited, checkpoint.Packs{Stream: s.Name, On: on, By: s.Operator, At: time.Now().UTC()}, tag); err != nil {
		return err
	}
	what := "leaders send single messages, at the latest in ten seconds"
	if on {
		what = "leaders with PACK=auto send packs, at the latest in ten seconds"
	}
	return s.print(Result{Changed: before.On != on, Epoch: present.Record.Epoch}, "stream %q: %s", s.Name, what)
}

// rule returns the name of a rule of a subscription that is not the true filter; it is empty
// without one.
func (e *Entity) rule(ctx context.Context) (found string, err error) {
	if e.Queue {
		return "", nil
	}
	client, err := e.Administer()
	if err != nil {
		return "", err
	}
	for subscriptions := client.NewListSubscriptionsPager(e.Name, nil); subscriptions.More(); {
		page, err := subscriptions.NextPage(ctx)
		if err != nil {
			return "", err
		}
		for _, subscription := range page.Subscriptions {
			for rules := client.NewListRulesPager(e.Name, subscription.SubscriptionName, nil); rules.More(); {
				page, err := rules.NextPage(ctx)
				if err != nil {
					return "", err
				}
				for _, rule := range page.Rules {
					if _, all := rule.Filter.(*admin.TrueFilter); !all {
						return fmt.Sprintf("rule %s of subscription %s", rule.Name, subscription.SubscriptionName), nil
					}
				}
			}
		}
	}
	return "", nil
}
