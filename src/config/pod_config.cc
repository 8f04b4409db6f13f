#include "k3pod/config/pod_config.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <functional>
#include <set>

#include "fabric_keys.h"
#include "k3pod/base/file.h"
#include "k3pod/base/text.h"
#include "keys.h"
#include "values.h"

namespace k3pod {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxBytes = int64_t{1} << 60;  // of one size, and of a sum of them

struct Place {
    const fs::path& file;
    int64_t line = 0;  // 0: the file as a whole
};

Status refuse(const Place& place, const std::string& what) {
    if (place.line == 0) return invalid_argument(fmt::format("{}: {}", place.file.string(), what));
    return invalid_argument(fmt::format("{}:{}: {}", place.file.string(), place.line, what));
}

Place place_of(const fs::path& file, const toml::node& node) {
    return {file, static_cast<int64_t>(node.source().begin.line)};
}

KeyValue to_key_value(const toml::node& node) {
    KeyValue value;
    if (const auto* s = node.as_string()) {
        value.type = KeyValue::Type::kString;
        value.text = s->get();
    } else if (const auto* i = node.as_integer()) {
        value.type = KeyValue::Type::kInteger;
        value.integer = i->get();
        value.text = fmt::format("{}", value.integer);
    } else if (const auto* b = node.as_boolean()) {
        value.type = KeyValue::Type::kBoolean;
        value.boolean = b->get();
        value.text = value.boolean ? "true" : "false";
    } else if (const auto* table = node.as_table()) {
        value.type = KeyValue::Type::kTable;
        value.text = "a table";
        for (const auto& [name, member] : *table) {
            value.members.push_back(to_key_value(member));
            value.members.back().name = name.str();
        }
    } else if (const auto* array = node.as_array()) {
        value.type = KeyValue::Type::kArray;
        value.text = "an array";
        for (const toml::node& item : *array) value.members.push_back(to_key_value(item));
    } else {
        value.text = node.is_floating_point() ? "a fraction" : "a date";
    }
    return value;
}

// Every section with its key names, for "belongs to" and "did you mean".
std::vector<std::pair<std::string, std::vector<std::string>>> all_key_names() {
    std::vector<std::pair<std::string, std::vector<std::string>>> all;
    const auto add = [&](const char* section, const auto& keys) {
        all.emplace_back(section, std::vector<std::string>());
        for (const auto& key : keys) all.back().second.push_back(key.name);
    };
    add("[pod]", pod_keys());
    add("[station]", station_keys());
    add("[placement]", placement_keys());
    add("[exchange]", exchange_keys());
    add("[staging]", staging_keys());
    add("[[expert]]", expert_keys());
    add("[station.hbm]", tier_keys());
    add("[station.host]", tier_keys());
    add("[[switch]]", switch_keys());
    add("[[cable]]", cable_keys());
    add("[power]", power_keys());
    return all;
}

std::string unknown_key_hint(const std::string& section, const std::string& name) {
    std::string near;
    for (const auto& [other, names] : all_key_names()) {
        if (other == section) near = nearest(name, names);
    }
    if (!near.empty()) return fmt::format("did you mean '{}'?", near);
    for (const auto& [other, names] : all_key_names()) {
        for (const std::string& known : names) {
            if (known == name) return fmt::format("it belongs in {}", other);
        }
    }
    return "see configs/k3-pod.toml for every key";
}

template <class Section>
Status read_section(const fs::path& file, const std::string& title, const toml::table& table,
                    const std::vector<Key<Section>>& keys, Section& out) {
    for (const auto& [name, node] : table) {
        const std::string key_name(name.str());
        const auto key = std::find_if(keys.begin(), keys.end(),
                                      [&](const auto& k) { return k.name == key_name; });
        if (key == keys.end()) {
            return refuse(place_of(file, node),
                          fmt::format("unknown key '{}' in {}; {}", shortened(key_name), title,
                                      unknown_key_hint(title, key_name)));
        }
        const Status read = key->read(to_key_value(node), out);
        if (!read) {
            return refuse(place_of(file, node),
                          fmt::format("{} {}: {}", title, key_name, read.message()));
        }
    }
    for (const auto& key : keys) {
        if (key.required && !table.contains(key.name)) {
            return refuse(place_of(file, table),
                          fmt::format("{} lacks '{}', which has no default", title, key.name));
        }
    }
    return Status::ok();
}

// A section that may be there any number of times, written [[title]].
template <class Section>
Status read_sections(const fs::path& file, const std::string& title, const toml::node& node,
                     const std::vector<Key<Section>>& keys, std::vector<Section>& out) {
    const toml::array* array = node.as_array();
    if (array == nullptr || !array->is_homogeneous(toml::node_type::table)) {
        return refuse(place_of(file, node),
                      fmt::format("'{}' is written as {} tables", title, "[[" + title + "]]"));
    }
    for (const toml::node& item : *array) {
        K3POD_TRY(
            read_section(file, "[[" + title + "]]", *item.as_table(), keys, out.emplace_back()));
    }
    return Status::ok();
}

// Every section that there may be, by name.
struct Sections {
    using Read = std::function<Status(const fs::path&, const toml::node&, PodConfig&)>;
    std::vector<std::pair<std::string, Read>> all;

    template <class Section, class Field>
    void one(const std::string& name, const std::vector<Key<Section>>& keys, Field field) {
        all.emplace_back(
            name, [=, &keys](const fs::path& file, const toml::node& node, PodConfig& config) {
                if (!node.is_table()) {
                    return refuse(place_of(file, node),
                                  fmt::format("'{}' must be a section, [{}]", name, name));
                }
                return read_section(file, "[" + name + "]", *node.as_table(), keys, field(config));
            });
    }
    template <class Section, class Field>
    void many(const std::string& name, const std::vector<Key<Section>>& keys, Field field) {
        all.emplace_back(
            name, [=, &keys](const fs::path& file, const toml::node& node, PodConfig& config) {
                return read_sections(file, name, node, keys, field(config));
            });
    }
};

Sections make_sections() {
    Sections sections;
    const auto whole = [](PodConfig& c) -> PodConfig& { return c; };
    sections.one("pod", pod_keys(), whole);
    sections.one("station", station_keys(), whole);
    sections.one("placement", placement_keys(), whole);
    sections.one("exchange", exchange_keys(), whole);
    sections.one("staging", staging_keys(), whole);
    sections.many(
        "expert", expert_keys(), [](PodConfig & c) -> auto& { return c.experts; });
    sections.many(
        "switch", switch_keys(), [](PodConfig & c) -> auto& { return c.fabric.switches; });
    sections.many(
        "cable", cable_keys(), [](PodConfig & c) -> auto& { return c.fabric.cables; });
    sections.one(
        "power", power_keys(), [](PodConfig & c) -> auto& { return c.fabric.power; });
    return sections;
}

Status read_root(const fs::path& file, const toml::table& root, PodConfig& config) {
    static const Sections kSections = make_sections();
    for (const auto& [name, node] : root) {
        const std::string section(name.str());
        const auto found = std::find_if(kSections.all.begin(), kSections.all.end(),
                                        [&](const auto& known) { return known.first == section; });
        if (found != kSections.all.end()) {
            K3POD_TRY(found->second(file, node, config));
            continue;
        }
        std::vector<std::string> known;
        for (const auto& [known_name, read] : kSections.all) known.push_back(known_name);
        const std::string near = nearest(section, known);
        return refuse(place_of(file, node),
                      fmt::format("unknown section or key '{}'; {}", shortened(section),
                                  near.empty() ? unknown_key_hint("", section)
                                               : fmt::format("did you mean '{}'?", near)));
    }
    return Status::ok();
}

// What is wrong between sections of cables, with the file.
Status check_cables(const PodConfig& config) {
    std::vector<std::string> nodes{"station"};
    for (const ExpertConfig& expert : config.experts) nodes.push_back(expert.name);
    const Status checked = check_fabric_config(config.fabric, nodes);
    return checked ? checked : refuse({config.file, 0}, checked.message());
}

Status check_names_and_addresses(const PodConfig& config) {
    const Place place{config.file, 0};
    const std::set<std::string> reserved{"station", "station.hbm", "station.host"};
    std::set<std::string> names;
    std::set<std::string> addresses;
    const auto claim = [&](const std::string& address, const std::string& owner) -> Status {
        const bool any_port = address.ends_with(":0");
        if (address.empty() || any_port || addresses.insert(address).second) return Status::ok();
        return refuse(
            place, fmt::format("{} uses the address {} a second time; every listener needs its own",
                               owner, address));
    };
    K3POD_TRY(claim(config.station.listen, "station"));
    for (const ExpertConfig& expert : config.experts) {
        if (reserved.contains(expert.name)) {
            return refuse(place, fmt::format("[[expert]] name '{}' means the station or a memory "
                                             "of it; give the server another name",
                                             expert.name));
        }
        if (!names.insert(expert.name).second) {
            return refuse(place, fmt::format("two [[expert]] servers are named '{}'; give each a "
                                             "name of its own",
                                             expert.name));
        }
        K3POD_TRY(claim(expert.control, expert.name));
        K3POD_TRY(claim(expert.http, expert.name));
    }
    return Status::ok();
}

Status check_memory(const fs::path& file, const std::string& name, const MemoryConfig& memory) {
    const auto refuse_memory = [&](const std::string& what) {
        return refuse({file, 0}, fmt::format("{}: {}", name, what));
    };
    if (memory.memory_bytes == 0 && !memory.reserve.empty()) {
        return refuse_memory("has reserve lines but no memory to take them from; give memory");
    }
    if (memory.memory_bytes > 0 && memory.expert_budget_bytes > memory.memory_bytes) {
        return refuse_memory(fmt::format("expert_budget {} is over its memory {}; lower it",
                                         format_bytes_twice(memory.expert_budget_bytes),
                                         format_bytes_twice(memory.memory_bytes)));
    }
    if (memory.memory_bytes > 0 && memory.reserved_bytes() >= memory.memory_bytes) {
        return refuse_memory(fmt::format(
            "the reserve lines take {}, its memory is {}; lower the lines",
            format_bytes_twice(memory.reserved_bytes()), format_bytes_twice(memory.memory_bytes)));
    }
    return Status::ok();
}

Status check_memories(const PodConfig& config) {
    const StationConfig& station = config.station;
    const bool has_tiers = station.hbm.is_given() || station.host.is_given();
    if (has_tiers && station.expert_budget_bytes > 0) {
        return refuse({config.file, 0},
                      "[station] expert_budget is for a station without tiers; with [station.hbm] "
                      "and [station.host] write it in those sections");
    }
    if (config.experts.empty() && !has_tiers && station.expert_budget_bytes == 0) {
        return refuse({config.file, 0},
                      "no node holds experts: add [[expert]] servers or [station] expert_budget");
    }
    K3POD_TRY(check_memory(config.file, "[station.hbm]", station.hbm));
    K3POD_TRY(check_memory(config.file, "[station.host]", station.host));
    for (const ExpertConfig& expert : config.experts) {
        if (!expert.is_given()) {
            return refuse(
                {config.file, 0},
                fmt::format("{}: [[expert]] lacks 'expert_budget' (more than 0), or memory "
                            "with its reserve",
                            expert.name));
        }
        K3POD_TRY(check_memory(config.file, expert.name, expert));
    }
    return Status::ok();
}

Status check_shard_caches(const PodConfig& config) {
    if (config.staging.source == ShardOrigin::kStation) return Status::ok();
    for (const ExpertConfig& expert : config.experts) {
        if (expert.shard_cache.empty()) continue;
        return refuse({config.file, 0},
                      fmt::format("{}: shard_cache keeps what the station sends, but [staging] "
                                  "source is \"local\"; leave it out",
                                  expert.name));
    }
    return Status::ok();
}

Status check_whole(const PodConfig& config) {
    const Place place{config.file, 0};
    if (config.model.empty()) return refuse(place, "[pod] lacks 'model', the checkpoint folder");
    K3POD_TRY(check_memories(config));
    if (config.station.max_body_bytes < 1024) {
        return refuse(place, fmt::format("[station] max_body {} is below the least allowed, 1 KiB",
                                         format_bytes(config.station.max_body_bytes)));
    }
    const int32_t least = config.station.max_num_seqs + 16;
    if (config.station.max_batch_tokens < least) {
        return refuse(
            place,
            fmt::format("[station] max_batch_tokens {} is below {}: a step must take one token "
                        "of each of max_num_seqs = {} sequences and a prefill chunk of 16",
                        config.station.max_batch_tokens, least, config.station.max_num_seqs));
    }
    K3POD_TRY(check_shard_caches(config));
    K3POD_TRY(check_names_and_addresses(config));
    return check_cables(config);
}

void make_paths_absolute(PodConfig& config) {
    const fs::path base = config.file.parent_path();
    const auto anchor = [&](fs::path& p) {
        if (!p.empty() && p.is_relative()) p = (base / p).lexically_normal();
        if (!p.empty() && !p.has_filename()) p = p.parent_path();
    };
    anchor(config.model);
    anchor(config.placement.file);
    for (fs::path& trace : config.placement.traces) anchor(trace);
    for (ExpertConfig& expert : config.experts) anchor(expert.shard_cache);
}

// The names that the pod file leaves to its own path and to the model's.
Status take_names_from_paths(PodConfig& config) {
    const auto take = [&](std::string& name, const fs::path& path, const char* key) -> Status {
        if (!name.empty()) return Status::ok();
        name = path.string();
        const Status usable = name.empty() ? invalid_argument("is empty") : check_text(name);
        if (usable) return usable;
        return refuse({config.file},
                      fmt::format("{} is not set, and the name that the path gives {}; set it", key,
                                  usable.message()));
    };
    K3POD_TRY(take(config.name, config.file.stem(), "[pod] name"));
    return take(config.station.served_model_name, config.model.filename(),
                "[station] served_model_name");
}

template <class Section>
void print_section(std::string& out, const std::string& title,
                   const std::vector<Key<Section>>& keys, const Section& section) {
    out += title + "\n";
    for (const auto& key : keys) {
        const std::string value = key.print(section);
        if (!value.empty()) out += key.name + " = " + value + "\n";
    }
    out += "\n";
}

}  // namespace

int64_t MemoryConfig::reserved_bytes() const {
    int64_t sum = 0;
    for (const ReserveLine& line : reserve) sum = std::min(sum + line.bytes, kMaxBytes);
    return sum;
}

int64_t MemoryConfig::budget_bytes() const {
    if (expert_budget_bytes > 0 || memory_bytes == 0) return expert_budget_bytes;
    return memory_bytes - reserved_bytes();
}

const ExpertConfig* PodConfig::find_expert(const std::string& node) const {
    for (const ExpertConfig& expert : experts) {
        if (expert.name == node) return &expert;
    }
    return nullptr;
}

Status PodConfig::no_such_expert(const std::string& node) const {
    constexpr size_t kListed = 8;
    std::vector<std::string> names;
    for (const ExpertConfig& expert : experts) names.push_back(expert.name);
    const std::string near = nearest(shortened(node), names);
    std::string known;
    for (size_t i = 0; i < std::min(names.size(), kListed); ++i) {
        known += (i == 0 ? "" : ", ") + names[i];
    }
    if (names.size() > kListed) known += fmt::format(" and {} more", names.size() - kListed);
    return invalid_argument(fmt::format("no [[expert]] of {} is named '{}'; {}", file.string(),
                                        shortened(node),
                                        !near.empty()    ? fmt::format("did you mean '{}'?", near)
                                        : !known.empty() ? "it has " + known
                                                         : "it has none"));
}

Result<PodConfig> parse_pod_config(std::string_view text, const fs::path& file) {
    const toml::parse_result parsed = toml::parse(text, file.string());
    if (!parsed) {
        const auto& error = parsed.error();
        return refuse(
            {file, static_cast<int64_t>(error.source().begin.line)},
            fmt::format("column {}: {}", error.source().begin.column, error.description()));
    }
    PodConfig config;
    config.file = file;
    K3POD_TRY(read_root(file, parsed.table(), config));
    make_paths_absolute(config);
    K3POD_TRY(check_whole(config));
    K3POD_TRY(take_names_from_paths(config));
    return config;
}

Result<PodConfig> read_pod_config(const fs::path& file) {
    constexpr int64_t kMaxFileBytes = 4 << 20;
    const auto text = read_text_file(file, kMaxFileBytes);
    if (!text) {
        const Status& why = text.status();
        return Status(why.code(), why.message() + "; give the pod file with --pod");
    }
    return parse_pod_config(*text, fs::absolute(file).lexically_normal());
}

std::string to_toml(const PodConfig& config) {
    std::string out;
    print_section(out, "[pod]", pod_keys(), config);
    print_section(out, "[station]", station_keys(), config);
    const MemoryConfig nothing;
    if (config.station.hbm != nothing) {
        print_section(out, "[station.hbm]", tier_keys(), config.station.hbm);
    }
    if (config.station.host != nothing) {
        print_section(out, "[station.host]", tier_keys(), config.station.host);
    }
    print_section(out, "[placement]", placement_keys(), config);
    print_section(out, "[exchange]", exchange_keys(), config);
    print_section(out, "[staging]", staging_keys(), config);
    for (const ExpertConfig& expert : config.experts) {
        print_section(out, "[[expert]]", expert_keys(), expert);
    }
    for (const SwitchConfig& config_of_switch : config.fabric.switches) {
        print_section(out, "[[switch]]", switch_keys(), config_of_switch);
    }
    for (const CableConfig& cable : config.fabric.cables) {
        print_section(out, "[[cable]]", cable_keys(), cable);
    }
    if (config.fabric.power != PowerConfig()) {
        print_section(out, "[power]", power_keys(), config.fabric.power);
    }
    return out;
}

Status check_environment(const char* const* environ_list) {
    std::string found;
    for (; environ_list != nullptr && *environ_list != nullptr; ++environ_list) {
        const std::string_view entry = *environ_list;
        if (!entry.starts_with("K3POD_")) continue;
        found += (found.empty() ? "" : ", ") + std::string(entry.substr(0, entry.find('=')));
    }
    if (found.empty()) return Status::ok();
    return invalid_argument(
        fmt::format("k3pod reads no environment variables, but {} is set; put settings in the pod "
                    "file and unset it",
                    found));
}

}  // namespace k3pod
