#include "fabric/verbs.h"

namespace k3pod::fabric {

Result<std::vector<RdmaPort>> query_verbs() {
    return Status(Code::kUnimplemented,
                  "this program was built without libibverbs; install libibverbs-dev and build it "
                  "again (scripts/setup)");
}

}  // namespace k3pod::fabric
