#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <thread>
#include <vector>

#include "transport/ucx/process_watch.h"
#include "transport/ucx/wake_event.h"

namespace k3pod::ucx {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kNoFile = -1;  // poll ignores it

TEST(WakeEvent, one_wake_ends_every_sleep_in_progress) {
    WakeEvent event;
    ASSERT_TRUE(event.open().is_ok());
    const auto start = std::chrono::steady_clock::now();
    std::atomic<int> num_back{0};
    std::vector<std::thread> sleepers;
    for (int i = 0; i < 3; ++i) {
        sleepers.emplace_back([&] {
            event.sleep(kNoFile, kNoFile, seconds(30));
            ++num_back;
        });
    }
    while (num_back < 3) {
        event.wake();
        std::this_thread::yield();
    }
    for (std::thread& sleeper : sleepers) sleeper.join();
    EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(10));
}

TEST(WakeEvent, a_wake_counts_for_one_sleep_only) {
    WakeEvent event;
    ASSERT_TRUE(event.open().is_ok());
    event.wake();
    event.wake();
    event.sleep(kNoFile, kNoFile, seconds(30));
    const auto start = std::chrono::steady_clock::now();
    event.sleep(kNoFile, kNoFile, std::chrono::milliseconds(20));
    EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(20));
}

pid_t start_sleeper() {
    const pid_t pid = fork();
    if (pid == 0) {
        pause();
        _exit(0);
    }
    return pid;
}

void wait_until_readable(int fd) {
    pollfd file{.fd = fd, .events = POLLIN, .revents = 0};
    EXPECT_EQ(poll(&file, 1, 10000), 1);
}

TEST(ProcessWatch, names_the_peer_whose_process_ended_until_it_is_forgotten) {
    ProcessWatch watch;
    ASSERT_TRUE(watch.open().is_ok());
    const pid_t child = start_sleeper();
    ASSERT_TRUE(watch.add(1, identity_of(getpid())).is_ok());
    ASSERT_TRUE(watch.add(2, identity_of(child)).is_ok());
    EXPECT_THAT(watch.ended(), IsEmpty());
    kill(child, SIGKILL);
    wait_until_readable(watch.fd());  // not reaped yet
    EXPECT_THAT(watch.ended(), ElementsAre(2));
    waitpid(child, nullptr, 0);
    EXPECT_THAT(watch.ended(), ElementsAre(2));
    watch.forget(2);
    EXPECT_THAT(watch.ended(), IsEmpty());
}

TEST(ProcessWatch, refuses_a_process_that_is_gone_or_another_with_its_number) {
    ProcessWatch watch;
    ASSERT_TRUE(watch.open().is_ok());
    const pid_t child = start_sleeper();
    ProcessIdentity identity = identity_of(child);
    EXPECT_GT(identity.start_ticks, 0u);
    identity.start_ticks -= 1;
    EXPECT_EQ(watch.add(1, identity).code(), Code::kUnavailable);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    identity.start_ticks += 1;
    const Status gone = watch.add(1, identity);
    EXPECT_EQ(gone.code(), Code::kUnavailable);
    EXPECT_THAT(gone.message(), HasSubstr("process " + std::to_string(child) + " has ended"));
    EXPECT_EQ(identity_of(child).start_ticks, 0u);
}

}  // namespace
}  // namespace k3pod::ucx
