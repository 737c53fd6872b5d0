#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>

namespace gyre::net::http::internal {

/// How many of something each user has at once. Not thread-safe.
class Shares {
 public:
  /// One of a user's, until it is destroyed. Empty where the user had as many as are allowed.
  class Share {
   public:
    Share() = default;
    Share(Shares* shares, std::string user) : shares_(shares), user_(std::move(user)) {}
    Share(Share&& other) noexcept : shares_(std::exchange(other.shares_, nullptr)), user_(std::move(other.user_)) {}
    Share& operator=(Share&& other) noexcept {
      std::swap(shares_, other.shares_);
      std::swap(user_, other.user_);
      return *this;
    }
    ~Share() {
      if (shares_ != nullptr) shares_->give_back(user_);
    }
    explicit operator bool() const { return shares_ != nullptr; }

   private:
    Shares* shares_ = nullptr;
    std::string user_;
  };

  Share take(const std::string& user, std::size_t most) {
    std::size_t& held = held_[user];
    if (held >= most) return {};
    ++held;
    return {this, user};
  }

 private:
  void give_back(const std::string& user) {
    const auto found = held_.find(user);
    if (--found->second == 0) held_.erase(found);
  }

  std::map<std::string, std::size_t> held_;
};

}  // namespace gyre::net::http::internal
