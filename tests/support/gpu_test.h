#pragma once
// What every test on a GPU needs: a device or a skip, a stream, and values moved there and back.

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "k3pod/device/cuda.h"

namespace k3pod::testing {

// Skipped where there is no CUDA device.
class GpuTest : public ::testing::Test {
  protected:
    void SetUp() override {
        if (num_cuda_devices() == 0) GTEST_SKIP() << "no CUDA device";
        ASSERT_TRUE(use_cuda_device(0).is_ok());
        stream_ = std::make_unique<DeviceStream>(DeviceStream::create().value());
    }
    CudaStream stream() const { return stream_->get(); }
    // Waits for all that was launched; a test failure when any of it failed.
    void synchronize() const {
        const Status done = stream_->synchronize();
        ASSERT_TRUE(done.is_ok()) << done.to_string();
    }

  private:
    std::unique_ptr<DeviceStream> stream_;
};

// Copies and fills without a stream of their own may still be under way when they return.
inline void finish_copies() {
    const auto now = DeviceEvent::create().value();
    EXPECT_TRUE(now.record(nullptr).is_ok());
    EXPECT_TRUE(now.synchronize().is_ok());
}

template <class T>
DeviceBuffer to_gpu(std::span<const T> values) {
    const auto bytes = static_cast<int64_t>(values.size_bytes());
    auto buffer = DeviceBuffer::create(bytes).value();
    EXPECT_TRUE(copy_to_device(buffer.data(), values.data(), bytes).is_ok());
    finish_copies();
    return buffer;
}
template <class T>
DeviceBuffer to_gpu(const std::vector<T>& values) {
    return to_gpu(std::span<const T>(values));
}

// Space for `n` values, every byte 0xff: floating-point types hold NaN.
template <class T>
DeviceBuffer poisoned_on_gpu(int64_t n) {
    auto buffer = DeviceBuffer::create(n * static_cast<int64_t>(sizeof(T))).value();
    EXPECT_TRUE(fill_device(buffer.data(), 0xff, buffer.size_bytes()).is_ok());
    finish_copies();
    return buffer;
}

// The first `n` values; all when n < 0. The work that writes them must be over.
template <class T>
std::vector<T> from_gpu(const DeviceBuffer& buffer, int64_t n = -1) {
    const int64_t all = buffer.size_bytes() / static_cast<int64_t>(sizeof(T));
    std::vector<T> values(static_cast<size_t>(n < 0 ? all : n));
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
    EXPECT_TRUE(copy_to_host(values.data(), buffer.data(), bytes).is_ok());
    finish_copies();
    return values;
}

}  // namespace k3pod::testing
