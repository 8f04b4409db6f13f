#include "fabric_keys.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <span>

#include "key_makers.h"
#include "values.h"

namespace k3pod {
namespace {

constexpr std::array<Unit, 3> kBitsPerSecond{{{"Tb/s", 1e12}, {"Gb/s", 1e9}, {"Mb/s", 1e6}}};
constexpr std::array<Unit, 2> kWatts{{{"kW", 1e3}, {"W", 1}}};
constexpr std::array<Unit, 3> kMillimetres{{{"m", 1e3}, {"cm", 10}, {"mm", 1}}};

std::string spell(int64_t value, std::span<const Unit> units) {
    for (const Unit& unit : units) {
        const auto factor = static_cast<int64_t>(unit.factor);
        if (value % factor == 0) return fmt::format("{} {}", value / factor, unit.name);
    }
    return fmt::format("{} {}", static_cast<double>(value) / units.back().factor,
                       units.back().name);
}

// A whole number of base units, from `low` to `high`, written with one of the units. 0 is "not
// given" and is not printed.
struct Range {
    std::span<const Unit> units;
    int64_t low, high;
};

template <class Section, class Field>
Key<Section> quantity_key(std::string name, Field field, Range range, bool required = false) {
    return {std::move(name), required,
            [field, range](const KeyValue& v, Section& s) -> Status {
                const bool is_text = v.type == KeyValue::Type::kString;
                const auto value = is_text ? parse_quantity(v.text, range.units) : std::nullopt;
                const bool is_inside = value && *value >= static_cast<double>(range.low) &&
                                       *value <= static_cast<double>(range.high);
                if (!is_inside) {
                    return invalid_argument(fmt::format("{} is not from {} to {}, as in {}",
                                                        shown(v), spell(range.low, range.units),
                                                        spell(range.high, range.units),
                                                        quoted(spell(range.low, range.units))));
                }
                using Value = std::remove_reference_t<decltype(field(s))>;
                field(s) = static_cast<Value>(std::llround(*value));
                return Status::ok();
            },
            [field, range](const Section& s) {
                const int64_t value = field(const_cast<Section&>(s));
                return value == 0 ? std::string() : quoted(spell(value, range.units));
            }};
}

constexpr bool kRequired = true;
constexpr Range kPortRate{kBitsPerSecond, 1'000'000'000, 100'000'000'000'000};
constexpr Range kPower{kWatts, 1, 1'000'000};
constexpr Range kLength{kMillimetres, 1, 10'000'000};

}  // namespace

const std::vector<Key<SwitchConfig>>& switch_keys() {
    static const std::vector<Key<SwitchConfig>> kKeys{
        text_key<SwitchConfig>("name", K3POD_FIELD(SwitchConfig, name), kRequired),
        integer_key<SwitchConfig>("cages", K3POD_FIELD(SwitchConfig, cages), 1, 1024, kRequired),
        integer_key<SwitchConfig>("ports_per_cage", K3POD_FIELD(SwitchConfig, ports_per_cage), 1,
                                  16),
        quantity_key<SwitchConfig>("port_rate", K3POD_FIELD(SwitchConfig, port_bits_per_s),
                                   kPortRate, kRequired),
    };
    return kKeys;
}

const std::vector<Key<CableConfig>>& cable_keys() {
    static const std::vector<Key<CableConfig>> kKeys{
        text_key<CableConfig>("from", K3POD_FIELD(CableConfig, from), kRequired),
        text_key<CableConfig>("to", K3POD_FIELD(CableConfig, to), kRequired),
        choice_key<CableConfig>("kind", K3POD_FIELD(CableConfig, kind),
                                Choices<CableKind>{{"passive copper", CableKind::kPassiveCopper},
                                                   {"active copper", CableKind::kActiveCopper},
                                                   {"optical", CableKind::kOptical}}),
        quantity_key<CableConfig>("length", K3POD_FIELD(CableConfig, length_mm), kLength,
                                  kRequired),
    };
    return kKeys;
}

const std::vector<Key<PowerConfig>>& power_keys() {
    static const std::vector<Key<PowerConfig>> kKeys{
        quantity_key<PowerConfig>("line", K3POD_FIELD(PowerConfig, line_watts), kPower, kRequired),
        quantity_key<PowerConfig>("station", K3POD_FIELD(PowerConfig, station_watts), kPower),
        quantity_key<PowerConfig>("expert_server", K3POD_FIELD(PowerConfig, expert_server_watts),
                                  kPower),
        quantity_key<PowerConfig>("switch", K3POD_FIELD(PowerConfig, switch_watts), kPower),
    };
    return kKeys;
}

Status check_fabric_config(const FabricConfig& fabric, const std::vector<std::string>& nodes) {
    std::set<std::string> names(nodes.begin(), nodes.end());
    std::set<std::string> switches;
    for (const SwitchConfig& config : fabric.switches) {
        if (!names.insert(config.name).second) {
            return invalid_argument(
                fmt::format("[[switch]] '{}' has the name of another machine; every name is used "
                            "once",
                            config.name));
        }
        switches.insert(config.name);
    }
    for (const CableConfig& cable : fabric.cables) {
        for (const std::string& end : {cable.from, cable.to}) {
            if (names.contains(end)) continue;
            return invalid_argument(fmt::format(
                "[[cable]] from '{}' to '{}': there is no '{}'; cables join 'station', expert "
                "servers and switches by their names",
                cable.from, cable.to, end));
        }
        const bool has_switch = switches.contains(cable.from) || switches.contains(cable.to);
        if (has_switch && cable.from != cable.to) continue;
        return invalid_argument(fmt::format(
            "[[cable]] from '{}' to '{}': a cable has a switch at one end at least, and another "
            "machine at the other",
            cable.from, cable.to));
    }
    return Status::ok();
}

}  // namespace k3pod
