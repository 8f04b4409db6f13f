#pragma once
// What each benchmark line says besides its figures: which machine, which commit.

#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace k3pod::bench {

inline std::string cpu_model() {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);) {
        if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
    }
    return "unknown";
}

// "1a2b3c4", with "+" behind it when tracked files differ from the commit; "unknown" without git.
inline std::string commit_of_source() {
    const std::string command =
        "git -C '" K3POD_SOURCE_DIR "' describe --always --dirty=+ --exclude '*' 2>/dev/null";
    std::string text;
    if (FILE* pipe = popen(command.c_str(), "r")) {
        std::array<char, 128> line{};
        if (std::fgets(line.data(), line.size(), pipe) != nullptr) text = line.data();
        pclose(pipe);
    }
    while (text.ends_with('\n')) text.pop_back();
    return text.empty() ? "unknown" : text;
}

// The beginning of a line of `bench`; figures are added behind it.
inline nlohmann::ordered_json report_header(const std::string& bench) {
    utsname name{};
    uname(&name);
    nlohmann::ordered_json line;
    line["bench"] = bench;
    line["commit"] = commit_of_source();
    line["machine"] = {
        {"cpu", cpu_model()}, {"cores", sysconf(_SC_NPROCESSORS_ONLN)}, {"kernel", name.release}};
    return line;
}

}  // namespace k3pod::bench
