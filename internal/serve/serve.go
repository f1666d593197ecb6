// Package serve runs the HTTP listeners of every role in the same way:
// bound before anything starts, with timeouts, drained at the end.
package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"syscall"
	"time"
)

// Server is one HTTP listener. Create it with Listen, so that a port in use
// is reported before the role has started anything.
type Server struct {
	listener net.Listener
	server   *http.Server
}

// Listen binds address (host:port). The error names the address and, when the
// port is taken, the flag that moves it.
func Listen(address, flag string, handler http.Handler, log *slog.Logger) (*Server, error) {
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("listen on %s: the port is in use; choose another with %s", address, flag)
	}
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	return &Server{
		listener: listener,
		server: &http.Server{
			Handler:           handler,
			ReadHeaderTimeout: 10 * time.Second,
			IdleTimeout:       2 * time.Minute,
			ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		},
	}, nil
}

// Addr is the bound address, with the real port when 0 was asked for.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Run serves until ctx ends, then gives requests in flight five seconds.
func (s *Server) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if err := s.server.Shutdown(drain); err != nil {
			_ = s.server.Close() // the drain timed out: cut what is left
		}
	})
	defer stop()
	if err := s.server.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve on %s: %w", s.Addr(), err)
	}
	return nil
}

// JSON writes v with the given status.
func JSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client is gone: nobody left to tell
}

// Error writes {"error": "..."} with the given status.
func Error(w http.ResponseWriter, status int, err error) {
	JSON(w, status, map[string]string{"error": err.Error()})
}
