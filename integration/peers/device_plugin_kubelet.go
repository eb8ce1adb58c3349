// A kubelet that has a device plugin register with it, asks it for one device of its list, and prints the answer as JSON.
//
// It stands in k8s-device-plugin's module by an overlay, for its vendored API of the kubelet. Usage: DIRECTORY
package main

import (
	"context"
	"encoding/json"
	"log"
	"net"
	"os"
	"path/filepath"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

type kubelet struct {
	pluginapi.UnimplementedRegistrationServer
	registered chan *pluginapi.RegisterRequest
}

func (k *kubelet) Register(_ context.Context, request *pluginapi.RegisterRequest) (*pluginapi.Empty, error) {
	k.registered <- request
	return &pluginapi.Empty{}, nil
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	directory := os.Args[1]
	k := &kubelet{registered: make(chan *pluginapi.RegisterRequest, 1)}
	server := grpc.NewServer()
	pluginapi.RegisterRegistrationServer(server, k)
	socket, err := net.Listen("unix", filepath.Join(directory, "kubelet.sock"))
	check(err)
	go func() { check(server.Serve(socket)) }()

	request := <-k.registered
	endpoint := "unix://" + filepath.Join(directory, request.Endpoint)
	connection, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(err)
	plugin := pluginapi.NewDevicePluginClient(connection)
	watch, err := plugin.ListAndWatch(context.Background(), &pluginapi.Empty{})
	check(err)
	listed, err := watch.Recv()
	check(err)
	var devices []string
	for _, device := range listed.Devices {
		devices = append(devices, device.ID)
	}
	wanted := &pluginapi.ContainerAllocateRequest{DevicesIds: devices[:1]}
	answer, err := plugin.Allocate(context.Background(), &pluginapi.AllocateRequest{
		ContainerRequests: []*pluginapi.ContainerAllocateRequest{wanted},
	})
	check(err)
	check(json.NewEncoder(os.Stdout).Encode(map[string]any{
		"resource": request.ResourceName,
		"devices":  devices,
		"envs":     answer.ContainerResponses[0].Envs,
		"mounts":   answer.ContainerResponses[0].Mounts,
	}))
}
