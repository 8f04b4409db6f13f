#pragma once
// Process log on stderr: one line per state change, with ids. Nothing per token above debug.
// Control characters in a message are escaped, so that nothing from outside can forge a line. Safe
// from any thread. Never call on the token path except under a failure.

#include <string_view>

namespace k3pod::log {

enum class Level { kDebug, kInfo, kWarning, kError };

// `role` ("station", "spark-1"), which has no '%', is printed in each line. Call once from main;
// default "k3pod", kInfo.
void init(std::string_view role, Level level);

void debug(std::string_view message);
void info(std::string_view message);
void warning(std::string_view message);
void error(std::string_view message);

}  // namespace k3pod::log
