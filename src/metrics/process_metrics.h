#pragma once
// What the operating system says about this process and its machine, read at each scrape. Memory
// comes from /proc and never from a GPU library: on unified memory those answer "not supported".

#include <string>
#include <vector>

#include "prometheus/metric_family.h"

namespace k3pod {

// Families whose value could not be read are left out: no number is better than a wrong one.
std::vector<prometheus::MetricFamily> collect_process_metrics();

// Names of all families that collect_process_metrics can give.
std::vector<std::string> process_metric_names();

}  // namespace k3pod
