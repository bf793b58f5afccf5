// Command probe-servicebus tests a real namespace of Azure Service Bus, in about a minute, for
// behaviour that no documentation confirms.
//
//	SERVICE_BUS_CONNECTION_STRING='Endpoint=sb://…' probe-servicebus
//
// It prints a table: what Sluice and its embedded Service Bus assume of the service, the answer of
// the embedded one, and that of the namespace. It creates two queues with sessions, whose names
// begin with sluice-probe-, and deletes them at the end, so the key needs the right Manage.
// SERVICE_BUS_ADMINISTRATION is the URL of an emulator's administration. The exit code is 1 if an
// answer differs, and 2 if a question could not be asked.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"github.com/sluice-cdc/sluice/shared/azure"
	"github.com/sluice-cdc/sluice/shared/servicebus"
)

// patience bounds all questions together.
const patience = 3 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code, err := run(ctx, os.Getenv("SERVICE_BUS_CONNECTION_STRING"), os.Getenv("SERVICE_BUS_ADMINISTRATION"), os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "probe-servicebus:", err)
	}
	os.Exit(code)
}

func run(ctx context.Context, connectionString, administration string, out io.Writer) (code int, err error) {
	if connectionString == "" {
		return 2, errors.New("SERVICE_BUS_CONNECTION_STRING: is required")
	}
	settings := azure.ServiceBus{ConnectionString: connectionString}
	client, err := settings.Administer(nil, administration, nil)
	if err != nil {
		return 2, err
	}
	name := "sluice-probe-" + strings.ToLower(rand.Text()[:8])
	queues := []string{name, name + "-quiet"}
	defer func() {
		deleting, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		for _, queue := range queues {
			if _, wrong := client.DeleteQueue(deleting, queue, nil); wrong != nil {
				code, err = 2, errors.Join(err, fmt.Errorf("delete queue %s: %w", queue, wrong))
			}
		}
	}()
	for i, queue := range queues {
		if _, err := client.CreateQueue(ctx, queue, &admin.CreateQueueOptions{Properties: &admin.QueueProperties{RequiresSession: new(true)}}); err != nil {
			queues = queues[:i]
			return 2, fmt.Errorf("create queue %s: %w", queue, err)
		}
	}
	namespace, err := servicebus.New(settings, nil, nil)
	if err != nil {
		return 2, err
	}
	return show(out, probe(ctx, namespace, queues[0], queues[1])), nil
}

// answer is the namespace's answer.
type answer struct {
	text string
	err  error
}

// probe asks all questions at once, each on a connection of its own, and returns the answers in
// their order.
func probe(ctx context.Context, namespace *servicebus.Namespace, queue, quiet string) []answer {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	answers := make([]answer, len(questions))
	var all sync.WaitGroup
	for i, q := range questions {
		all.Go(func() {
			conn, err := namespace.Connect(ctx)
			if err != nil {
				answers[i].err = err
				return
			}
			defer conn.Close(ctx)
			p := &place{conn: conn, queue: queue, quiet: quiet, id: fmt.Sprint("question-", i+1)}
			for _, entity := range []string{queue, quiet, queue + "/$DeadLetterQueue"} {
				if err := conn.Claim(ctx, entity); err != nil {
					answers[i].err = err
					return
				}
			}
			session, err := conn.Session(ctx)
			if err != nil {
				answers[i].err = err
				return
			}
			p.session = session.Session
			answers[i].text, answers[i].err = q.ask(ctx, p)
		})
	}
	all.Wait()
	return answers
}

// show prints the table, and returns the exit code.
func show(out io.Writer, answers []answer) (code int) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\tASSUMPTION\tEMBEDDED\tNAMESPACE")
	for i, q := range questions {
		text, mark := answers[i].text, "agrees"
		switch {
		case answers[i].err != nil:
			text, mark, code = fmt.Sprintf("could not be asked: %v", answers[i].err), "?", 2
		case text != q.ours:
			mark, code = "DIFFERS", max(code, 1)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", mark, q.assumption, q.ours, text)
	}
	_ = w.Flush() // standard output, or a buffer
	return code
}
