// Package console shows a pipeline in a browser while it runs, and lets an operator act on it.
//
// A [Home] reads one [View] a second and provides the operator's functions. The console renders
// pages from the View on the server, and sends the parts of a page that have changed over one
// stream of server-sent events. Without script a page is complete, and shows later values when it
// is loaded again.
//
// Guaranteed:
//   - Memory does not grow: ten minutes of samples, the newest terms, the newest answers to actions
//     and a bounded number of open streams are kept.
//   - The page and /status show the same View.
//   - Text from documents is text: ids, reasons and bodies are escaped in pages and in the stream,
//     and characters that would change the direction of the text are replaced.
//   - A request whose Host header is not that of the console is refused, so that a page of another
//     site cannot reach it under a name of its own (DNS rebinding).
//   - An action needs a POST of the same origin, the token of this process, and the typed
//     confirmation if the action has one. A console without actions answers no POST.
//
// Not guaranteed: that a watcher sees every View. A slow one misses some.
package console
