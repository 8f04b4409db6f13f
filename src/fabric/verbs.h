#pragma once
// libibverbs' answers about every port of this machine, where the program was built with it.

#include <vector>

#include "k3pod/base/status.h"
#include "k3pod/fabric/facts.h"

namespace k3pod::fabric {

Result<std::vector<RdmaPort>> query_verbs();

}  // namespace k3pod::fabric
