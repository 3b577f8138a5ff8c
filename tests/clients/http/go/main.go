// Command calls schedules a message by net/http with its defaults, and prints "name status".
package main

import (
	"fmt"
	"net/http"
	"os"
	"strings"
)

func main() {
	body := strings.NewReader(`{"topic": "any", "id": "go", "body": {"by": "go"}, "delayTime": "1h"}`)
	answer, err := http.Post(os.Args[1]+"/v1/messages", "application/json", body)
	if err != nil {
		panic(err)
	}
	fmt.Println("go", answer.StatusCode)
}
