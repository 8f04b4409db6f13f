#pragma once
// A machine of which tests/unit/check/recorded has a recording: a folder with its files under /proc
// and /sys, what libibverbs answered (verbs.json), routes.json, and the lines of nvidia-smi
// (gpus.csv). What a recording lacks, the machine lacks.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "k3pod/fabric/facts.h"

namespace k3pod::testing {

class RecordedSystem final : public System {
  public:
    explicit RecordedSystem(const std::string& name)
        : root_(std::filesystem::path(K3POD_SOURCE_DIR) / "tests/unit/check/recorded" / name) {}

    Result<std::string> read(const std::filesystem::path& file) const override {
        std::ifstream in(root_ / file.relative_path());
        if (!in.is_open()) return not_found(file.string());
        std::string text{std::istreambuf_iterator<char>(in), {}};
        if (text.ends_with('\n')) text.pop_back();
        return text;
    }

    std::vector<std::string> list(const std::filesystem::path& dir) const override {
        std::vector<std::string> names;
        std::error_code error;
        for (const auto& entry :
             std::filesystem::directory_iterator(root_ / dir.relative_path(), error)) {
            names.push_back(entry.path().filename().string());
        }
        std::sort(names.begin(), names.end());
        return names;
    }

    Result<std::vector<RdmaPort>> rdma_ports() const override {
        const auto text = read("verbs.json");
        if (!text) return unavailable("libibverbs finds no RDMA on this machine");
        std::vector<RdmaPort> ports;
        for (const auto& json : nlohmann::json::parse(*text)) {
            RdmaPort port;
            port.device = json.at("device");
            port.port = json.at("port");
            port.state = json.at("state");
            port.is_active = port.state == "PORT_ACTIVE";
            port.is_ethernet = json.at("ethernet");
            port.rate_bits_per_s = json.at("gigabits_per_s").get<int64_t>() * 1'000'000'000;
            port.mtu = json.at("mtu");
            port.max_mtu = json.at("max_mtu");
            for (const auto& gid : json.at("gids")) {
                port.gids.push_back({gid.at("index"), gid.at("address"), gid.at("roce_v2")});
            }
            ports.push_back(std::move(port));
        }
        return ports;
    }

    Result<Route> route_to(const std::string& address) const override {
        const auto text = read("routes.json");
        const auto routes = nlohmann::json::parse(text ? *text : "{}");
        if (!routes.contains(address)) return unavailable("no route: Network is unreachable");
        const auto& route = routes.at(address);
        return Route{route.at("source"), route.at("interface")};
    }

    Result<std::string> gpu_lines() const override {
        const auto text = read("gpus.csv");
        return text ? *text + "\n"
                    : Result<std::string>(unavailable("nvidia-smi fails: not found"));
    }

  private:
    const std::filesystem::path root_;
};

}  // namespace k3pod::testing
