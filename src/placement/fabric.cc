#include "k3pod/placement/fabric.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

namespace k3pod {
namespace {

constexpr const char* kStation = "station";
constexpr int32_t kPassiveCopperLimitMm = 3000;  // of 200 Gb/s over four lanes

std::string rate(int64_t bits_per_s) {
    return fmt::format("{:g} Gb/s", static_cast<double>(bits_per_s) / 1e9);
}

// "2:1", "1.5:1"
std::string ratio(int64_t offered, int64_t carried) {
    return fmt::format("{:.3g}:1", static_cast<double>(offered) / static_cast<double>(carried));
}

std::string count(int64_t n, const char* thing) {
    return fmt::format("{} {}{}", n, thing, n == 1 ? "" : "s");
}

class FabricCheck {
  public:
    FabricCheck(const FabricConfig& fabric, std::span<const std::string> servers)
        : fabric_(fabric), servers_(servers) {}

    FabricReport run() {
        if (!fabric_.switches.empty()) {
            for (const SwitchConfig& config : fabric_.switches) {
                report_.switches.push_back({.name = config.name, .cages = config.cages});
            }
            for (const CableConfig& cable : fabric_.cables) attach(cable);
            check_switches();
            check_servers();
            check_trunks();
            check_station();
            price_further_cages();
        }
        for (const CableConfig& cable : fabric_.cables) check_length(cable);
        check_power();
        return std::move(report_);
    }

  private:
    void fact(std::string text) { report_.findings.push_back({false, std::move(text)}); }
    void problem(std::string text) { report_.findings.push_back({true, std::move(text)}); }

    // The switch's place in the pod file, or the number of switches for another name.
    size_t switch_of(const std::string& name) const {
        const auto it = std::find_if(fabric_.switches.begin(), fabric_.switches.end(),
                                     [&](const SwitchConfig& s) { return s.name == name; });
        return static_cast<size_t>(it - fabric_.switches.begin());
    }
    bool is_switch(const std::string& name) const {
        return switch_of(name) < fabric_.switches.size();
    }
    int64_t cage_rate(size_t s) const {
        return fabric_.switches[s].ports_per_cage * fabric_.switches[s].port_bits_per_s;
    }

    void attach(const CableConfig& cable) {
        if (is_switch(cable.from) && is_switch(cable.to)) {
            ++report_.switches[switch_of(cable.from)].trunk_cages;
            ++report_.switches[switch_of(cable.to)].trunk_cages;
            return;
        }
        const bool is_switch_first = is_switch(cable.from);
        const std::string& node = is_switch_first ? cable.to : cable.from;
        const size_t s = switch_of(is_switch_first ? cable.from : cable.to);
        if (node == kStation) {
            ++report_.switches[s].station_cages;
            report_.station_bits_per_s += fabric_.switches[s].port_bits_per_s;
        } else {
            ++report_.switches[s].num_servers;
        }
    }

    int32_t free_cages(size_t s) const {
        const SwitchUse& use = report_.switches[s];
        const int32_t ports = fabric_.switches[s].ports_per_cage;
        return use.cages - use.trunk_cages - use.station_cages -
               (use.num_servers + ports - 1) / ports;
    }

    void check_switches() {
        std::string room;
        for (size_t s = 0; s < report_.switches.size(); ++s) {
            SwitchUse& use = report_.switches[s];
            const SwitchConfig& config = fabric_.switches[s];
            const int32_t left = std::max(0, use.cages - use.trunk_cages - use.station_cages);
            use.room = left * config.ports_per_cage;
            room += fmt::format("{}{}", room.empty() ? "" : " + ", use.room);
            const std::string layout = fmt::format(
                "{}: {}, {} for the trunk, {} for the station, {} broken out {} x {}: room for {}, "
                "{} attached",
                use.name, count(use.cages, "cage"), use.trunk_cages, use.station_cages, left,
                config.ports_per_cage, rate(config.port_bits_per_s),
                count(use.room, "expert server"), use.num_servers);
            if (free_cages(s) >= 0) {
                fact(layout);
            } else {
                problem(fmt::format("{}; {} too few", layout, count(-free_cages(s), "cage")));
            }
        }
        fact(fmt::format("the switches have room for {} expert servers, the pod has {}", room,
                         servers_.size()));
    }

    void check_servers() {
        for (const std::string& server : servers_) {
            const bool has_cable = std::any_of(
                fabric_.cables.begin(), fabric_.cables.end(),
                [&](const CableConfig& c) { return c.from == server || c.to == server; });
            if (!has_cable) problem(fmt::format("{} has no cable to a switch", server));
        }
    }

    // What the trunk would carry if every server of the fuller side sent to the other.
    void check_trunks() {
        if (report_.switches.size() != 2) return;
        const SwitchUse &a = report_.switches[0], &b = report_.switches[1];
        if (a.trunk_cages == 0) {
            fact(
                fmt::format("{} and {} have no trunk: only the station reaches the servers of both",
                            a.name, b.name));
            return;
        }
        const size_t fuller = a.num_servers >= b.num_servers ? 0 : 1;
        const SwitchUse& use = report_.switches[fuller];
        const int64_t offered = use.num_servers * fabric_.switches[fuller].port_bits_per_s;
        const int64_t carried = use.trunk_cages * std::min(cage_rate(0), cage_rate(1));
        fact(fmt::format(
            "the trunk between {} and {} carries {}; the {} of one side send {}: oversubscribed {}",
            a.name, b.name, rate(carried), count(use.num_servers, "expert server"), rate(offered),
            ratio(offered, carried)));
    }

    void check_station() {
        int32_t legs = 0;
        int64_t servers_rate = 0;
        for (size_t s = 0; s < report_.switches.size(); ++s) {
            legs += report_.switches[s].station_cages;
            servers_rate += report_.switches[s].num_servers * fabric_.switches[s].port_bits_per_s;
        }
        if (legs == 0) {
            problem("the station has no cable to a switch");
            return;
        }
        fact(fmt::format("the station has {}, {} in all; the expert servers have {}: {}",
                         count(legs, "leg"), rate(report_.station_bits_per_s), rate(servers_rate),
                         ratio(servers_rate, report_.station_bits_per_s)));
    }

    // What one more cage of expert servers on a full switch would take the place of; switches
    // alike in one sentence.
    void price_further_cages() {
        std::map<std::pair<std::string, std::string>, std::string> names_by_price;
        for (size_t s = 0; s < report_.switches.size(); ++s) {
            const std::string more =
                count(fabric_.switches[s].ports_per_cage, "expert server") + " more";
            std::string& names = names_by_price[{more, price_of_a_further_cage(s)}];
            names += (names.empty() ? "" : " or ") + report_.switches[s].name;
        }
        for (const auto& [key, names] : names_by_price) {
            fact(fmt::format("{} on {} would {}", key.first, names, key.second));
        }
    }

    std::string price_of_a_further_cage(size_t s) const {
        const SwitchUse& use = report_.switches[s];
        if (free_cages(s) > 0) return "find a free cage";
        std::string costs;
        if (use.trunk_cages > 0) costs = cost_of_trunk(s);
        if (use.station_cages > 0) {
            costs += fmt::format("{}{}", costs.empty() ? "" : ", or ", cost_of_leg(s));
        }
        if (costs.empty()) costs = "another switch";
        return "need a cage that is not there; it would cost " + costs;
    }

    std::string cost_of_trunk(size_t s) const {
        const SwitchUse& use = report_.switches[s];
        if (use.trunk_cages > 1) return "half of the trunk";
        return "the trunk (a lost leg of the station then cuts a switch off)";
    }

    std::string cost_of_leg(size_t s) const {
        const SwitchUse& use = report_.switches[s];
        const SwitchConfig& config = fabric_.switches[s];
        const int64_t left = report_.station_bits_per_s - config.port_bits_per_s;
        std::string cost = fmt::format("a leg of the station ({} in all instead of {}", rate(left),
                                       rate(report_.station_bits_per_s));
        if (use.station_cages == 1 && use.trunk_cages > 0) {
            const int64_t offered =
                (use.num_servers + config.ports_per_cage) * config.port_bits_per_s;
            cost += fmt::format("; {} of expert servers then cross a trunk of {}, {}",
                                rate(offered), rate(use.trunk_cages * cage_rate(s)),
                                ratio(offered, use.trunk_cages * cage_rate(s)));
        } else if (use.station_cages == 1) {
            cost += "; nothing then joins it to the station";
        }
        return cost + ")";
    }

    void check_length(const CableConfig& cable) {
        if (cable.kind != CableKind::kPassiveCopper || cable.length_mm <= kPassiveCopperLimitMm) {
            return;
        }
        problem(fmt::format(
            "the cable from {} to {} is passive copper of {:g} m; passive copper reaches {:g} m: "
            "take a shorter one, active copper or optics",
            cable.from, cable.to, cable.length_mm / 1e3, kPassiveCopperLimitMm / 1e3));
    }

    void check_power() {
        const PowerConfig& power = fabric_.power;
        if (power.line_watts == 0) return;
        const auto num_servers = static_cast<int64_t>(servers_.size());
        const auto num_switches = static_cast<int64_t>(fabric_.switches.size());
        const int64_t others =
            num_servers * power.expert_server_watts + num_switches * power.switch_watts;
        const int64_t total = others + power.station_watts;
        const std::string sum = fmt::format(
            "{} x {} W of expert servers, {} x {} W of switches and {} W of the station "
            "are {} W",
            num_servers, power.expert_server_watts, num_switches, power.switch_watts,
            power.station_watts, total);
        if (total <= power.line_watts) {
            fact(fmt::format("{}; the line carries {} W continuously, {} W are left", sum,
                             power.line_watts, power.line_watts - total));
            return;
        }
        const bool others_fit = power.station_watts > 0 && others <= power.line_watts;
        problem(fmt::format(
            "{}; the line carries {} W continuously, {} W too few{}", sum, power.line_watts,
            total - power.line_watts,
            others_fit
                ? fmt::format(": give the station a line of its own, the others take {} W", others)
                : ": spread the machines over more lines"));
    }

    const FabricConfig& fabric_;
    std::span<const std::string> servers_;
    FabricReport report_;
};

}  // namespace

bool FabricReport::has_problems() const {
    return std::any_of(findings.begin(), findings.end(),
                       [](const Finding& finding) { return finding.is_problem; });
}

FabricReport check_fabric(const FabricConfig& fabric, std::span<const std::string> servers) {
    return FabricCheck(fabric, servers).run();
}

}  // namespace k3pod
