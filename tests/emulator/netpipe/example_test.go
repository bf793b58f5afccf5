package netpipe_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/sluice-cdc/sluice/tests/emulator/netpipe"
)

// Any server that takes a net.Listener can be reached in memory, by any client with a dialer.
func ExampleListen() {
	network := netpipe.Listen("shop")
	open := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "open") })
	server := httptest.Server{Listener: network, Config: &http.Server{Handler: open}}
	server.Start()
	defer server.Close()

	client := http.Client{Transport: &http.Transport{DialContext: network.DialContext}}
	response, err := client.Get("http://shop/hours")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	fmt.Println(string(text), err)
	// Output: open <nil>
}

// What is written before a close still arrives, as with TCP.
func ExamplePipe() {
	client, server := netpipe.Pipe()
	fmt.Fprint(client, "the last words")
	if err := client.Close(); err != nil {
		fmt.Println(err)
	}
	text, err := io.ReadAll(server)
	fmt.Println(string(text), err)
	// Output: the last words <nil>
}
