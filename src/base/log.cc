#include "k3pod/base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <string>

#include "k3pod/base/text.h"

namespace k3pod::log {
namespace {

spdlog::logger& logger() {
    static const std::shared_ptr<spdlog::logger> instance = [] {
        auto made = spdlog::stderr_color_mt("k3pod");
        made->set_pattern("%Y-%m-%d %H:%M:%S.%e %^%-7l%$ k3pod | %v");
        made->flush_on(spdlog::level::info);
        return made;
    }();
    return *instance;
}

spdlog::level::level_enum to_spdlog(Level level) {
    switch (level) {
        case Level::kDebug:
            return spdlog::level::debug;
        case Level::kInfo:
            return spdlog::level::info;
        case Level::kWarning:
            return spdlog::level::warn;
        case Level::kError:
            return spdlog::level::err;
    }
    return spdlog::level::info;
}

void write(Level level, std::string_view message) {
    logger().log(to_spdlog(level), "{}", escape_controls(message));
}

}  // namespace

void init(std::string_view role, Level level) {
    logger().set_pattern("%Y-%m-%d %H:%M:%S.%e %^%-7l%$ " + std::string(role) + " | %v");
    logger().set_level(to_spdlog(level));
}

void debug(std::string_view message) {
    write(Level::kDebug, message);
}
void info(std::string_view message) {
    write(Level::kInfo, message);
}
void warning(std::string_view message) {
    write(Level::kWarning, message);
}
void error(std::string_view message) {
    write(Level::kError, message);
}

}  // namespace k3pod::log
