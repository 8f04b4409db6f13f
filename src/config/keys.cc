#include "keys.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "values.h"

namespace k3pod {
namespace {

using Type = KeyValue::Type;

std::string quoted(const std::string& text) {
    std::string out = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') out += '\\';
        out += c;
    }
    return out + "\"";
}

Status wrong_type(const KeyValue& value, const char* expected) {
    return invalid_argument(fmt::format("{} is not {}", value.text, expected));
}

// Each maker below binds one key to one field, given as a function from section to field.

template <class Section, class Field>
Key<Section> text_key(std::string name, Field field, bool required = false) {
    return {std::move(name), required,
            [field](const KeyValue& v, Section& s) -> Status {
                if (v.type != Type::kString) return wrong_type(v, "a string");
                if (v.text.empty())
                    return invalid_argument("must not be empty; leave the key out instead");
                field(s) = v.text;
                return Status::ok();
            },
            [field](const Section& s) {
                const std::string text = field(const_cast<Section&>(s));
                return text.empty() ? std::string() : quoted(text);
            }};
}

template <class Section, class Field>
Key<Section> address_key(std::string name, Field field, bool required = false) {
    Key<Section> key = text_key<Section>(std::move(name), field, required);
    key.read = [read = key.read](const KeyValue& v, Section& s) -> Status {
        K3POD_TRY(read(v, s));
        return check_host_port(v.text);
    };
    return key;
}

template <class Section, class Field>
Key<Section> integer_key(std::string name, Field field, int64_t low, int64_t high) {
    return {
        std::move(name), false,
        [field, low, high](const KeyValue& v, Section& s) -> Status {
            if (v.type != Type::kInteger) return wrong_type(v, "a whole number");
            if (v.integer < low || v.integer > high) {
                return invalid_argument(
                    fmt::format("{} is outside {} to {}", v.integer, low, high));
            }
            using Value = std::remove_reference_t<decltype(field(s))>;
            field(s) = static_cast<Value>(v.integer);
            return Status::ok();
        },
        [field](const Section& s) { return fmt::format("{}", field(const_cast<Section&>(s))); }};
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

template <class Section, class Field>
Key<Section> duration_key(std::string name, Field field, Nanoseconds low) {
    return {std::move(name), false,
            [field, low](const KeyValue& v, Section& s) -> Status {
                if (v.type != Type::kString) return wrong_type(v, "a time such as \"500 ms\"");
                K3POD_ASSIGN(field(s), parse_duration(v.text));
                if (field(s) < low) {
                    return invalid_argument(fmt::format("{} is below the least allowed, {}",
                                                        quoted(v.text), format_duration(low)));
                }
                return Status::ok();
            },
            [field](const Section& s) {
                return quoted(format_duration(field(const_cast<Section&>(s))));
            }};
}

template <class E>
using Choices = std::vector<std::pair<std::string, E>>;

template <class Section, class E, class Field>
Key<Section> choice_key(std::string name, Field field, Choices<E> choices) {
    return {std::move(name), false,
            [field, choices](const KeyValue& v, Section& s) -> Status {
                std::string all;
                for (const auto& [word, value] : choices) {
                    if (v.type == Type::kString && v.text == word) {
                        field(s) = value;
                        return Status::ok();
                    }
                    all += (all.empty() ? "" : ", ") + quoted(word);
                }
                return invalid_argument(fmt::format("{} is not one of {}", quoted(v.text), all));
            },
            [field, choices](const Section& s) {
                for (const auto& [word, value] : choices) {
                    if (field(const_cast<Section&>(s)) == value) return quoted(word);
                }
                return std::string();
            }};
}

const Choices<Backend> kBackends{{"cpu", Backend::kCpu}, {"cuda", Backend::kCuda}};
constexpr int64_t kInt32Max = std::numeric_limits<int32_t>::max();

}  // namespace

#define K3POD_FIELD(section, expr) \
    [](section & c) -> auto& {     \
        return c.expr;             \
    }

const std::vector<Key<PodConfig>>& pod_keys() {
    static const std::vector<Key<PodConfig>> kKeys{
        text_key<PodConfig>("name", K3POD_FIELD(PodConfig, name)),
        {"model", true,
         [](const KeyValue& v, PodConfig& c) -> Status {
             if (v.type != Type::kString || v.text.empty()) return wrong_type(v, "a folder");
             c.model = v.text;
             return Status::ok();
         },
         [](const PodConfig& c) { return quoted(c.model.string()); }},
    };
    return kKeys;
}

const std::vector<Key<PodConfig>>& station_keys() {
    static const std::vector<Key<PodConfig>> kKeys{
        address_key<PodConfig>("listen", K3POD_FIELD(PodConfig, station.listen)),
        choice_key<PodConfig>("backend", K3POD_FIELD(PodConfig, station.backend), kBackends),
        text_key<PodConfig>("device", K3POD_FIELD(PodConfig, station_device)),
        text_key<PodConfig>("served_model_name", K3POD_FIELD(PodConfig, station.served_model_name)),
        bytes_key<PodConfig>("expert_budget", K3POD_FIELD(PodConfig, station.expert_budget_bytes)),
        integer_key<PodConfig>("max_num_seqs", K3POD_FIELD(PodConfig, station.max_num_seqs), 1,
                               1024),
        integer_key<PodConfig>("max_model_len", K3POD_FIELD(PodConfig, station.max_model_len), 0,
                               kInt32Max),
        integer_key<PodConfig>("kv_tokens", K3POD_FIELD(PodConfig, station.kv_tokens), 0,
                               int64_t{1} << 36),
        integer_key<PodConfig>("max_batch_tokens", K3POD_FIELD(PodConfig, station.max_batch_tokens),
                               16, 65535),
        integer_key<PodConfig>("queue_limit", K3POD_FIELD(PodConfig, station.queue_limit), 0,
                               1 << 20),
        integer_key<PodConfig>("default_max_tokens",
                               K3POD_FIELD(PodConfig, station.default_max_tokens), 0, kInt32Max),
        duration_key<PodConfig>("drain_timeout", K3POD_FIELD(PodConfig, station.drain_timeout),
                                Nanoseconds(0)),
        bytes_key<PodConfig>("max_body", K3POD_FIELD(PodConfig, station.max_body_bytes)),
        duration_key<PodConfig>("sse_keepalive", K3POD_FIELD(PodConfig, station.sse_keepalive),
                                Nanoseconds(0)),
    };
    return kKeys;
}

const std::vector<Key<PodConfig>>& placement_keys() {
    static const std::vector<Key<PodConfig>> kKeys{
        choice_key<PodConfig>("mode", K3POD_FIELD(PodConfig, placement.sliced),
                              Choices<bool>{{"whole", false}, {"sliced", true}}),
        {"file", false,
         [](const KeyValue& v, PodConfig& c) -> Status {
             if (v.type != Type::kString || v.text.empty()) return wrong_type(v, "a file name");
             c.placement.file = v.text;
             return Status::ok();
         },
         [](const PodConfig& c) {
             return c.placement.file.empty() ? std::string() : quoted(c.placement.file.string());
         }},
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
                                std::chrono::milliseconds(1)),
        duration_key<PodConfig>("heartbeat_interval",
                                K3POD_FIELD(PodConfig, exchange.heartbeat_interval),
                                std::chrono::milliseconds(1)),
        integer_key<PodConfig>("heartbeats_missed",
                               K3POD_FIELD(PodConfig, exchange.heartbeats_missed), 1, 1000),
    };
    return kKeys;
}

const std::vector<Key<ExpertConfig>>& expert_keys() {
    static const std::vector<Key<ExpertConfig>> kKeys{
        text_key<ExpertConfig>("name", K3POD_FIELD(ExpertConfig, name), true),
        address_key<ExpertConfig>("control", K3POD_FIELD(ExpertConfig, control), true),
        address_key<ExpertConfig>("http", K3POD_FIELD(ExpertConfig, http)),
        text_key<ExpertConfig>("device", K3POD_FIELD(ExpertConfig, device)),
        choice_key<ExpertConfig>("backend", K3POD_FIELD(ExpertConfig, backend), kBackends),
        bytes_key<ExpertConfig>("expert_budget", K3POD_FIELD(ExpertConfig, expert_budget_bytes),
                                true),
    };
    return kKeys;
}

#undef K3POD_FIELD

}  // namespace k3pod
