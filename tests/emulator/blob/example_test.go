package blob_test

import (
	"fmt"
	"net/http"
	"time"

	"github.com/sluice-cdc/sluice/tests/emulator/blob"
)

// During an outage every request fails. The transport needs no socket, so it also works in virtual
// time; azblob takes it as its Transport.
func ExampleServer_Fail() {
	server := blob.New(blob.Options{Token: "a-token"})
	client := http.Client{Transport: server.Transport()}
	create := func() {
		request, err := http.NewRequest(http.MethodPut, "http://storage/devstoreaccount1/orders?restype=container", http.NoBody)
		if err != nil {
			fmt.Println(err)
			return
		}
		request.Header.Set("Authorization", "Bearer a-token")
		request.Header.Set("x-ms-version", "2021-12-02")
		response, err := client.Do(request)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(response.StatusCode, response.Header.Get("x-ms-error-code"))
		response.Body.Close()
	}

	server.Fail(http.StatusServiceUnavailable, time.Minute)
	create()
	server.Fail(0, 0)
	create()
	// Output:
	// 503 ServerBusy
	// 201
}
