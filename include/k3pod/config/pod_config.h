#pragma once
// The pod file: one TOML file that every node reads. Unknown, misspelt, duplicate, misplaced or
// wrong values are refused with file, line, key, value, the limit and the nearest valid key;
// nothing falls back silently. configs/k3-pod.toml has every key with a comment.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "k3pod/base/clock.h"
#include "k3pod/base/status.h"
#include "k3pod/config/fabric_config.h"

namespace k3pod {

enum class Backend : uint8_t { kCpu, kCuda };

struct ReserveLine {
    std::string name;  // "os"
    int64_t bytes = 0;
    bool operator==(const ReserveLine&) const = default;
};

// One memory that holds experts: a tier of the station, or an expert server.
struct MemoryConfig {
    int64_t memory_bytes = 0;           // 0: not given
    std::vector<ReserveLine> reserve;   // what experts must leave free, by name
    int64_t bandwidth_bytes_per_s = 0;  // reading; 0: not given
    int64_t expert_budget_bytes = 0;    // > 0 overrides what memory and reserve leave
    int64_t reserved_bytes() const;     // all lines
    // The override, or memory less reserve; what else lives there (the station's weights and
    // state in HBM) is not known here. 0: holds nothing.
    int64_t budget_bytes() const;
    bool is_given() const { return memory_bytes > 0 || expert_budget_bytes > 0; }
    bool operator==(const MemoryConfig&) const = default;
};

struct StationConfig {
    std::string listen = "127.0.0.1:8000";  // HTTP: API, /health, /metrics
    Backend backend = Backend::kCpu;
    std::string served_model_name;    // default: the model folder's name
    int64_t expert_budget_bytes = 0;  // experts the station holds itself, without tiers
    MemoryConfig hbm, host;           // tiers; the weights and the state lie in hbm
    int32_t max_num_seqs = 16;        // sequences running at once (KDA slots)
    int32_t max_model_len = 0;        // prompt + output; 0: max_position_embeddings
    int64_t kv_tokens = 0;            // MLA cache, shared; 0: max_num_seqs * max_model_len
    int32_t max_batch_tokens = 512;   // tokens of one step
    int32_t queue_limit = 256;        // waiting requests; beyond it 429
    int32_t default_max_tokens = 0;   // when a request names none; 0: what the context leaves
    Nanoseconds drain_timeout{std::chrono::seconds(30)};
    int64_t max_body_bytes = 64 << 20;
    int32_t gpu_clock_mhz = 0;  // the cap that `k3pod check` expects; 0: none
    Nanoseconds sse_keepalive{
        std::chrono::seconds(10)};  // comment lines on a silent stream; 0: off
    bool operator==(const StationConfig&) const = default;
};

enum class TransportName : uint8_t { kShm, kTcp, kRc };
enum class CheckMode : uint8_t { kAuto, kOn, kOff };

struct ExchangeConfig {
    TransportName transport = TransportName::kTcp;
    bool spin = false;                           // wait = "auto" | "spin"
    bool reply_f32 = false;                      // reply = "bf16" | "f32"
    CheckMode payload_check = CheckMode::kAuto;  // auto: on for tcp, off for shm and rc
    Nanoseconds frame_deadline{std::chrono::seconds(1)};
    Nanoseconds heartbeat_interval{std::chrono::milliseconds(100)};
    int32_t heartbeats_missed = 5;
    Nanoseconds hold_timeout{std::chrono::minutes(2)};  // for a lost server; 0: fail at once
    bool operator==(const ExchangeConfig&) const = default;
};

enum class ModeChoice : uint8_t { kAuto, kWhole, kSliced };
enum class PackChoice : uint8_t { kNvfp4, kMxfp4 };

struct PlacementConfig {
    ModeChoice mode = ModeChoice::kAuto;
    PackChoice pack = PackChoice::kNvfp4;       // what an expert is counted as
    int32_t batch_tokens = 1;                   // of the step that the placement is made for
    std::vector<std::filesystem::path> traces;  // popularity of the experts; none: uniform
    std::filesystem::path file;                 // placement.json; empty: planned at start
    bool operator==(const PlacementConfig&) const = default;
};

enum class ShardOrigin : uint8_t { kLocal, kStation };

// Where expert servers get their shards.
struct StagingConfig {
    ShardOrigin source = ShardOrigin::kLocal;   // kLocal: each reads its own checkpoint
    int64_t buffer_bytes = int64_t{512} << 20;  // of the station: read and not yet confirmed
    int32_t readers = 2;                        // threads of the station that read and repack
    bool operator==(const StagingConfig&) const = default;
};

struct ExpertConfig : MemoryConfig {
    std::string name;                // node name, unique
    std::string control;             // host:port for gRPC
    std::string http;                // host:port for /metrics and /health; empty: none
    std::string device;              // NIC function for the data plane; empty: any
    std::vector<std::string> rails;  // all NIC functions, for `k3pod fabric link`; empty: device
    Backend backend = Backend::kCpu;
    std::filesystem::path shard_cache;  // folder for staged shards; empty: none are kept
    int32_t gpu_clock_mhz = 0;          // the cap that `k3pod check` expects; 0: none
    bool operator==(const ExpertConfig&) const = default;
};

struct PodConfig {
    std::filesystem::path file;  // where it was read from
    std::string name;
    std::filesystem::path model;  // checkpoint folder; relative paths are relative to the pod file
    StationConfig station;
    std::string station_device;              // NIC function for the data plane; empty: any
    std::vector<std::string> station_rails;  // as ExpertConfig::rails
    PlacementConfig placement;
    ExchangeConfig exchange;
    StagingConfig staging;
    std::vector<ExpertConfig> experts;  // at least one, or the station holds experts
    FabricConfig fabric;                // empty: not given

    const ExpertConfig* find_expert(const std::string& name) const;
    // The refusal of a name that find_expert() does not know, with those that there are.
    Status no_such_expert(const std::string& node) const;
    bool operator==(const PodConfig&) const = default;
};

Result<PodConfig> read_pod_config(const std::filesystem::path& file);
// As above from memory; `file` is only used in messages and for relative paths.
Result<PodConfig> parse_pod_config(std::string_view text, const std::filesystem::path& file);
// The effective configuration as TOML, defaults filled in: parse(to_toml(c)) == c.
std::string to_toml(const PodConfig& config);

// Refuses environment variables that start with K3POD_ (there are none), naming each.
Status check_environment(const char* const* environ_list);

}  // namespace k3pod
