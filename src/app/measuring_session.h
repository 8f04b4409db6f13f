#pragma once
// What `k3pod fabric link` and `k3pod fabric hop` share: sessions with `k3pod fabric serve` on the
// nodes of a pod, over the pod's own control plane.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "k3pod/config/pod_config.h"
#include "k3pod/control/control.h"
#include "k3pod/exchange/exchange.h"
#include "k3pod/transport/transport.h"
#include "k3pod/weights/model_config.h"

namespace k3pod {

using Address = std::vector<std::byte>;

// Several addresses as one, as control carries one: of the exchange, then of each rail.
Address pack_addresses(std::span<const Address> addresses);
// kInvalidArgument when it is not a packed list.
Result<std::vector<Address>> unpack_addresses(std::span<const std::byte> packed);

// The pod's model, as far as frames need it: from the checkpoint, or from the config.json beside
// the pod file, so that a fabric can be measured before there are weights.
Result<ModelConfig> measured_model(const PodConfig& pod);
// Those of the pod for frames of up to kMostProbeRows rows.
inline constexpr int32_t kMostProbeRows = 64;
ExchangeOptions probe_options(const PodConfig& pod, const ModelConfig& config);
// Another identity than that of a node that serves, which must not take part in a measurement.
NodeIdentity measuring_identity(const PodConfig& pod, const std::string& node);

// The NIC functions of a node; one entry, perhaps empty, where the pod file names no rails.
std::vector<std::string> rails_of(const std::string& device, const std::vector<std::string>& rails);

struct MeasuredNode {
    std::string name;
    uint64_t session = 0;
    std::vector<Address> addresses;  // of the exchange, then of each rail
};

class MeasuringSession {
  public:
    virtual ~MeasuringSession() = default;  // ends the sessions
    // With the first shards.size() servers of the pod file; shards[i] are what server i is to load,
    // none: it works on nothing. `addresses` are the station's own. Waits up to 60 s and says for
    // whom.
    static Result<std::unique_ptr<MeasuringSession>> open(
        const PodConfig& pod, std::span<const Address> addresses,
        const std::vector<std::vector<Shard>>& shards);
    virtual const std::vector<MeasuredNode>& nodes() const = 0;
};

}  // namespace k3pod
