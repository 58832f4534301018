// Kubernetes' own reading of quantities, of node affinity and of what a pod requests, for
// tests/cluster.
//
// One JSON object a line on stdin, one on stdout:
//
//	{"quantity": "1.5Gi"}                    -> {"valid": true, "value": 1610612736, "milli": 1610612736000, "sign": 1}
//	{"pod": {...}, "labels": [{...}, null]}  -> {"valid": true, "matches": [true, false]}
//	{"requested": {...}}                     -> {"valid": true, "milli": 1500, "value": 1073741824}
package main

import (
	"bufio"
	"encoding/json"
	"log"
	"math"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podresource "k8s.io/component-helpers/resource"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

type question struct {
	Quantity  *string             `json:"quantity"`
	Pod       *corev1.Pod         `json:"pod"`
	Labels    []map[string]string `json:"labels"`
	Requested *corev1.Pod         `json:"requested"`
}

type answer struct {
	Valid   bool   `json:"valid"`
	Value   int64  `json:"value"`
	Milli   int64  `json:"milli"`
	Sign    int    `json:"sign"`
	Large   bool   `json:"large"` // beyond what fits into value
	Matches []bool `json:"matches"`
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16*1024*1024)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	answers := json.NewEncoder(out)
	for lines.Scan() {
		var asked question
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			log.Fatalf("%s: %v", lines.Bytes(), err)
		}
		if err := answers.Encode(answered(asked)); err != nil {
			log.Fatal(err)
		}
	}
	if err := lines.Err(); err != nil {
		log.Fatal(err)
	}
}

func answered(asked question) answer {
	if asked.Quantity != nil {
		found, err := resource.ParseQuantity(*asked.Quantity)
		if err != nil {
			return answer{}
		}
		return answer{
			Valid: true,
			Value: found.Value(),
			Milli: found.MilliValue(),
			Sign:  found.Sign(),
			Large: found.CmpInt64(math.MaxInt64) > 0,
		}
	}
	if asked.Requested != nil { // as kube-scheduler counts the pods of a node
		options := podresource.PodResourcesOptions{UseStatusResources: true}
		found := podresource.PodRequests(asked.Requested, options)
		return answer{Valid: true, Milli: found.Cpu().MilliValue(), Value: found.Memory().Value()}
	}
	required := nodeaffinity.GetRequiredNodeAffinity(asked.Pod)
	found := answer{Valid: true}
	for _, labels := range asked.Labels {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: labels}}
		// An expression that cannot be read makes its term match nothing; Match says so beside
		// the answer.
		matches, _ := required.Match(node)
		found.Matches = append(found.Matches, matches)
	}
	return found
}
