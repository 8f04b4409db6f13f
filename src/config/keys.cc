#include "keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "key_makers.h"
#include "values.h"

namespace k3pod {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using Type = KeyValue::Type;

// ["a", "b"]; `what` is what each names, in messages.
template <class Section, class Field>
Key<Section> names_key(std::string name, Field field, const char* what) {
    return {std::move(name), false,
            [field, what](const KeyValue& v, Section& s) -> Status {
                if (v.type != Type::kArray) {
                    return wrong_type(v, fmt::format("a list of {}s", what).c_str());
                }
                field(s).clear();
                for (const KeyValue& item : v.members) {
                    if (item.type != Type::kString || item.text.empty()) {
                        return wrong_type(item, fmt::format("a {}", what).c_str());
                    }
                    K3POD_TRY(check_text(item.text));
                    field(s).emplace_back(item.text);
                }
                return Status::ok();
            },
            [field](const Section& s) {
                std::string list;
                for (const auto& item : field(const_cast<Section&>(s))) {
                    list += (list.empty() ? "" : ", ") + quoted(fs::path(item).string());
                }
                return list.empty() ? list : "[" + list + "]";
            }};
}

template <class Section, class Field>
Key<Section> address_key(std::string name, Field field, bool required = false) {
    return checked_key<Section>(std::move(name), field, check_host_port, required);
}

template <class Section, class Field>
Key<Section> bytes_key(std::string name, Field field, bool required = false) {
    return {
        std::move(name), required,
        [field](const KeyValue& v, Section& s) -> Status {
            if (v.type != Type::kString && v.type != Type::kInteger) {
                return wrong_type(v, "a size such as \"64 MiB\"");
            }
            K3POD_ASSIGN(field(s), parse_bytes(v.text));
            return Status::ok();
        },
        [field](const Section& s) { return quoted(format_bytes(field(const_cast<Section&>(s)))); }};
}

// As bytes_key; 0 is "not given" and is not printed.
template <class Section, class Field>
Key<Section> optional_bytes_key(std::string name, Field field) {
    Key<Section> key = bytes_key<Section>(std::move(name), field);
    key.print = [field, print = key.print](const Section& s) {
        return field(const_cast<Section&>(s)) == 0 ? std::string() : print(s);
    };
    return key;
}

template <class Section, class Field>
Key<Section> bandwidth_key(std::string name, Field field) {
    return {std::move(name), false,
            [field](const KeyValue& v, Section& s) -> Status {
                if (v.type != Type::kString) {
                    return wrong_type(v, "a bandwidth such as \"231 GB/s\"");
                }
                K3POD_ASSIGN(field(s), parse_bandwidth(v.text));
                return Status::ok();
            },
            [field](const Section& s) {
                const int64_t value = field(const_cast<Section&>(s));
                return value == 0 ? std::string() : quoted(format_bandwidth(value));
            }};
}

constexpr std::string_view kReserveNameLetters = "abcdefghijklmnopqrstuvwxyz0123456789-_";

Status read_reserve(const KeyValue& value, std::vector<ReserveLine>& out) {
    if (value.type != Type::kTable) {
        return wrong_type(value, "a table of named sizes such as { os = \"8 GiB\" }");
    }
    out.clear();
    for (const KeyValue& bytes : value.members) {
        const bool is_plain =
            bytes.name.find_first_not_of(kReserveNameLetters) == std::string::npos;
        if (bytes.name.empty() || !is_plain) {
            return invalid_argument(fmt::format(
                "'{}' is not the name of a line; write lower-case letters, digits, - and _",
                shortened(bytes.name)));
        }
        if (bytes.type != Type::kString && bytes.type != Type::kInteger) {
            return wrong_type(bytes, "a size such as \"64 MiB\"").with_context(bytes.name);
        }
        const auto size = parse_bytes(bytes.text);
        if (!size) return size.status().with_context(bytes.name);
        out.push_back({bytes.name, *size});
    }
    return Status::ok();
}

// { os = "8 GiB", engine = "1 GiB" }
template <class Section, class Field>
Key<Section> reserve_key(std::string name, Field field) {
    return {std::move(name), false,
            [field](const KeyValue& v, Section& s) { return read_reserve(v, field(s)); },
            [field](const Section& s) {
                std::string lines;
                for (const ReserveLine& line : field(const_cast<Section&>(s))) {
                    lines += fmt::format("{}{} = {}", lines.empty() ? "" : ", ", line.name,
                                         quoted(format_bytes(line.bytes)));
                }
                return lines.empty() ? lines : "{ " + lines + " }";
            }};
}

constexpr Nanoseconds kLongestDuration = std::chrono::hours(24);  // as parse_duration() has it
// A GPU waits half an hour for its experts before it takes the station for dead.
constexpr Nanoseconds kLongestHold = std::chrono::minutes(20);

template <class Section, class Field>
Key<Section> duration_key(std::string name, Field field, Nanoseconds low,
                          Zero zero = Zero::kIsTooSmall, Nanoseconds high = kLongestDuration) {
    return {std::move(name), false,
            [field, low, zero, high](const KeyValue& v, Section& s) -> Status {
                if (v.type != Type::kString) return wrong_type(v, "a time such as \"500 ms\"");
                K3POD_ASSIGN(field(s), parse_duration(v.text));
                if (field(s) > high) {
                    return invalid_argument(fmt::format("{} is above the most allowed, {}",
                                                        quoted(v.text), format_duration(high)));
                }
                const bool is_special = zero == Zero::kIsSpecial && field(s).count() == 0;
                if (is_special || field(s) >= low) return Status::ok();
                return invalid_argument(fmt::format(
                    "{} is below the least allowed, {}{}", shown(v), format_duration(low),
                    zero == Zero::kIsSpecial ? " (\"0 s\" is allowed, too)" : ""));
            },
            [field](const Section& s) {
                return quoted(format_duration(field(const_cast<Section&>(s))));
            }};
}

const Choices<Backend> kBackends{{"cpu", Backend::kCpu}, {"cuda", Backend::kCuda}};
constexpr int64_t kInt32Max = std::numeric_limits<int32_t>::max();
constexpr int64_t kLeastModelLen = 2;   // a token of prompt and one of output
constexpr int64_t kLeastKvTokens = 64;  // a page
constexpr int64_t kMaxClockMhz = 10'000;

// `keys` and those of a memory, which Section is.
template <class Section>
std::vector<Key<Section>> with_memory_keys(std::vector<Key<Section>> keys) {
    keys.push_back(optional_bytes_key<Section>("memory", K3POD_FIELD(Section, memory_bytes)));
    keys.push_back(reserve_key<Section>("reserve", K3POD_FIELD(Section, reserve)));
    keys.push_back(
        bandwidth_key<Section>("bandwidth", K3POD_FIELD(Section, bandwidth_bytes_per_s)));
    keys.push_back(
        optional_bytes_key<Section>("expert_budget", K3POD_FIELD(Section, expert_budget_bytes)));
    return keys;
}

// [station.hbm] and [station.host], read as one value; to_toml prints them as sections.
template <class Field>
Key<PodConfig> tier_key(std::string name, Field field) {
    return {std::move(name), false,
            [field](const KeyValue& v, PodConfig& c) -> Status {
                if (v.type != Type::kTable) return wrong_type(v, "a section");
                for (const KeyValue& value : v.members) {
                    const auto at =
                        std::find_if(tier_keys().begin(), tier_keys().end(),
                                     [&](const auto& k) { return k.name == value.name; });
                    if (at == tier_keys().end()) {
                        return invalid_argument(fmt::format(
                            "unknown key '{}'; a tier has memory, reserve, bandwidth and "
                            "expert_budget",
                            shortened(value.name)));
                    }
                    const Status read = at->read(value, field(c));
                    if (!read) return read.with_context(value.name);
                }
                return Status::ok();
            },
            [](const PodConfig&) { return std::string(); }};
}

}  // namespace

const std::vector<Key<PodConfig>>& pod_keys() {
    static const std::vector<Key<PodConfig>> kKeys{
        text_key<PodConfig>("name", K3POD_FIELD(PodConfig, name)),
        text_key<PodConfig>("model", K3POD_FIELD(PodConfig, model), true),
    };
    return kKeys;
}

const std::vector<Key<PodConfig>>& station_keys() {
    static const std::vector<Key<PodConfig>> kKeys{
        address_key<PodConfig>("listen", K3POD_FIELD(PodConfig, station.listen)),
        choice_key<PodConfig>("backend", K3POD_FIELD(PodConfig, station.backend), kBackends),
        text_key<PodConfig>("device", K3POD_FIELD(PodConfig, station_device)),
        names_key<PodConfig>("rails", K3POD_FIELD(PodConfig, station_rails), "NIC function"),
        text_key<PodConfig>("served_model_name", K3POD_FIELD(PodConfig, station.served_model_name)),
        optional_bytes_key<PodConfig>("expert_budget",
                                      K3POD_FIELD(PodConfig, station.expert_budget_bytes)),
        tier_key("hbm", K3POD_FIELD(PodConfig, station.hbm)),
        tier_key("host", K3POD_FIELD(PodConfig, station.host)),
        integer_key<PodConfig>("max_num_seqs", K3POD_FIELD(PodConfig, station.max_num_seqs), 1,
                               1024),
        integer_key<PodConfig>("max_model_len", K3POD_FIELD(PodConfig, station.max_model_len),
                               kLeastModelLen, kInt32Max, false, Zero::kIsSpecial),
        integer_key<PodConfig>("kv_tokens", K3POD_FIELD(PodConfig, station.kv_tokens),
                               kLeastKvTokens, int64_t{1} << 36, false, Zero::kIsSpecial),
        integer_key<PodConfig>("max_batch_tokens", K3POD_FIELD(PodConfig, station.max_batch_tokens),
                               16, 65535),
        integer_key<PodConfig>("queue_limit", K3POD_FIELD(PodConfig, station.queue_limit), 0,
                               1 << 20),
        integer_key<PodConfig>("default_max_tokens",
                               K3POD_FIELD(PodConfig, station.default_max_tokens), 0, kInt32Max),
        duration_key<PodConfig>("drain_timeout", K3POD_FIELD(PodConfig, station.drain_timeout),
                                milliseconds(100), Zero::kIsSpecial),
        bytes_key<PodConfig>("max_body", K3POD_FIELD(PodConfig, station.max_body_bytes)),
        duration_key<PodConfig>("sse_keepalive", K3POD_FIELD(PodConfig, station.sse_keepalive),
                                milliseconds(50), Zero::kIsSpecial),
        integer_key<PodConfig>("gpu_clock_mhz", K3POD_FIELD(PodConfig, station.gpu_clock_mhz), 0,
                               kMaxClockMhz),
    };
    return kKeys;
}

const std::vector<Key<PodConfig>>& placement_keys() {
    static const std::vector<Key<PodConfig>> kKeys{
        choice_key<PodConfig>("mode", K3POD_FIELD(PodConfig, placement.mode),
                              Choices<ModeChoice>{{"auto", ModeChoice::kAuto},
                                                  {"whole", ModeChoice::kWhole},
                                                  {"sliced", ModeChoice::kSliced}}),
        choice_key<PodConfig>(
            "pack", K3POD_FIELD(PodConfig, placement.pack),
            Choices<PackChoice>{{"nvfp4", PackChoice::kNvfp4}, {"mxfp4", PackChoice::kMxfp4}}),
        integer_key<PodConfig>("batch_tokens", K3POD_FIELD(PodConfig, placement.batch_tokens), 1,
                               65535),
        names_key<PodConfig>("traces", K3POD_FIELD(PodConfig, placement.traces), "file name"),
        text_key<PodConfig>("file", K3POD_FIELD(PodConfig, placement.file)),
    };
    return kKeys;
}

const std::vector<Key<PodConfig>>& exchange_keys() {
    static const std::vector<Key<PodConfig>> kKeys{
        choice_key<PodConfig>("transport", K3POD_FIELD(PodConfig, exchange.transport),
                              Choices<TransportName>{{"shm", TransportName::kShm},
                                                     {"tcp", TransportName::kTcp},
                                                     {"rc", TransportName::kRc}}),
        choice_key<PodConfig>("wait", K3POD_FIELD(PodConfig, exchange.spin),
                              Choices<bool>{{"auto", false}, {"spin", true}}),
        choice_key<PodConfig>("reply", K3POD_FIELD(PodConfig, exchange.reply_f32),
                              Choices<bool>{{"bf16", false}, {"f32", true}}),
        choice_key<PodConfig>(
            "payload_check", K3POD_FIELD(PodConfig, exchange.payload_check),
            Choices<CheckMode>{
                {"auto", CheckMode::kAuto}, {"on", CheckMode::kOn}, {"off", CheckMode::kOff}}),
        duration_key<PodConfig>("frame_deadline", K3POD_FIELD(PodConfig, exchange.frame_deadline),
                                milliseconds(10)),
        duration_key<PodConfig>("heartbeat_interval",
                                K3POD_FIELD(PodConfig, exchange.heartbeat_interval),
                                milliseconds(10)),
        integer_key<PodConfig>("heartbeats_missed",
                               K3POD_FIELD(PodConfig, exchange.heartbeats_missed), 1, 1000),
        duration_key<PodConfig>("hold_timeout", K3POD_FIELD(PodConfig, exchange.hold_timeout),
                                milliseconds(10), Zero::kIsSpecial, kLongestHold),
    };
    return kKeys;
}

const std::vector<Key<PodConfig>>& staging_keys() {
    static const std::vector<Key<PodConfig>> kKeys{
        choice_key<PodConfig>("source", K3POD_FIELD(PodConfig, staging.source),
                              Choices<ShardOrigin>{{"local", ShardOrigin::kLocal},
                                                   {"station", ShardOrigin::kStation}}),
        bytes_key<PodConfig>("buffer", K3POD_FIELD(PodConfig, staging.buffer_bytes)),
        integer_key<PodConfig>("readers", K3POD_FIELD(PodConfig, staging.readers), 1, 64),
    };
    return kKeys;
}

const std::vector<Key<ExpertConfig>>& expert_keys() {
    static const std::vector<Key<ExpertConfig>> kKeys{
        checked_key<ExpertConfig>("name", K3POD_FIELD(ExpertConfig, name), check_node_name, true),
        address_key<ExpertConfig>("control", K3POD_FIELD(ExpertConfig, control), true),
        address_key<ExpertConfig>("http", K3POD_FIELD(ExpertConfig, http)),
        text_key<ExpertConfig>("device", K3POD_FIELD(ExpertConfig, device)),
        names_key<ExpertConfig>("rails", K3POD_FIELD(ExpertConfig, rails), "NIC function"),
        choice_key<ExpertConfig>("backend", K3POD_FIELD(ExpertConfig, backend), kBackends),
        text_key<ExpertConfig>("shard_cache", K3POD_FIELD(ExpertConfig, shard_cache)),
        integer_key<ExpertConfig>("gpu_clock_mhz", K3POD_FIELD(ExpertConfig, gpu_clock_mhz), 0,
                                  kMaxClockMhz),
    };
    static const std::vector<Key<ExpertConfig>> kAll = with_memory_keys(kKeys);
    return kAll;
}

const std::vector<Key<MemoryConfig>>& tier_keys() {
    static const std::vector<Key<MemoryConfig>> kKeys = with_memory_keys<MemoryConfig>({});
    return kKeys;
}

}  // namespace k3pod
