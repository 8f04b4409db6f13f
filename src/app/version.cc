#include <fmt/format.h>

#include "build_id.h"
#include "commands.h"
#include "k3pod/control/control.h"
#include "k3pod/device/cuda.h"
#include "k3pod/transport/transport.h"
#include "k3pod/wire/frame.h"

namespace k3pod {

const std::string& build_id() {
    static const std::string kId = K3POD_BUILD_ID;
    return kId;
}

std::string version_text() {
    return fmt::format(
        "k3pod {}\nbuild id         {}\nback ends        {}\ncontrol version  {}\nwire version    "
        " {}\nUCX              {}\n",
        K3POD_VERSION, build_id(), cuda_is_built() ? "cpu, cuda" : "cpu", kControlVersion,
        wire::kVersion, ucx_version());
}

}  // namespace k3pod
