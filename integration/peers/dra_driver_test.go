// The DRA driver's MpsControlDaemon on a simulated GPU, step by step as the lines of standard input say: `start`, `ready`,
// `edits`, `stop`. Each is answered by a line of JSON.
//
// It stands in the driver's package by an overlay, since all that it calls is the package's own. The objects of the cluster
// are those of the API server that MPS_PEER_API names.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"
	coreclientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	configapi "sigs.k8s.io/dra-driver-nvidia-gpu/api/nvidia.com/resource/v1beta1"
	pkgflags "sigs.k8s.io/dra-driver-nvidia-gpu/pkg/flags"
)

// What the test that runs this asks for.
type asked struct {
	Api         string   `json:"api"`
	Claim       string   `json:"claim"`
	Gpus        []string `json:"gpus"`
	Percentage  *int     `json:"percentage"`
	Limit       string   `json:"limit"`
	MultiUser   bool     `json:"multiUser"`
	DriverRoot  string   `json:"driverRoot"`
	HostRoot    string   `json:"hostRoot"`
	PluginsPath string   `json:"pluginsPath"`
}

func TestOfReMPS(t *testing.T) {
	var wanted asked
	require.NoError(t, json.Unmarshal([]byte(os.Getenv("MPS_PEER_ASKED")), &wanted))
	content := rest.ContentConfig{ContentType: "application/json", AcceptContentTypes: "application/json"}
	core, err := coreclientset.NewForConfig(&rest.Config{Host: wanted.Api, ContentConfig: content})
	require.NoError(t, err)
	library, err := newDeviceLib(root(wanted.DriverRoot), root("/"))
	require.NoError(t, err)
	devices := AllocatableDevices{}
	for _, uuid := range wanted.Gpus {
		gpu := &GpuInfo{UUID: uuid, cudaComputeCapability: "9.0"}
		library.gpuInfosByUUID[uuid] = gpu
		devices[uuid] = &AllocatableDevice{Gpu: gpu}
	}
	config := &Config{
		flags: &Flags{
			nodeName:                    "node",
			namespace:                   "remps",
			imageName:                   "driver",
			kubeletPluginsDirectoryPath: wanted.PluginsPath,
		},
		clientsets: pkgflags.ClientSets{Core: core},
	}
	limit := resource.MustParse(wanted.Limit)
	mps := &configapi.MpsConfig{
		DefaultActiveThreadPercentage:  wanted.Percentage,
		DefaultPinnedDeviceMemoryLimit: &limit,
		MultiUser:                      &wanted.MultiUser,
	}
	manager := NewMpsManager(config, library, wanted.HostRoot, "/templates/mps-control-daemon.tmpl.yaml")
	daemon := manager.NewMpsControlDaemon(wanted.Claim, devices)

	ctx := context.Background()
	answers := json.NewEncoder(os.Stdout)
	for steps := bufio.NewScanner(os.Stdin); steps.Scan(); {
		answer := map[string]any{"step": steps.Text(), "id": daemon.GetID()}
		var err error
		switch steps.Text() {
		case "start":
			err = daemon.Start(ctx, mps)
		case "ready":
			err = daemon.AssertReady(ctx)
		case "edits":
			answer["edits"] = daemon.GetCDIContainerEdits().ContainerEdits
		case "stop":
			err = daemon.Stop(ctx)
		}
		if err != nil {
			answer["error"] = err.Error()
		}
		require.NoError(t, answers.Encode(answer))
	}
}
