package console

import (
	"net/http"

	"github.com/go-chi/chi/v5"

	"orderpaid/platform/httpserver"
)

// Handler returns the pages. Forms that another site sends are refused by what
// the browser says about their origin, so that no page needs a token in it.
func (s *Service) Handler() http.Handler {
	r := httpserver.NewRouter("console")
	r.Use(http.NewCrossOriginProtection().Handler)
	r.NotFound(s.notFound)
	r.Get("/static/{version}/{file}", serveStatic)
	r.Get("/favicon.ico", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	r.Post("/language", s.postLanguage)
	s.shopRoutes(r)
	s.watchRoutes(r)
	s.operatorRoutes(r)
	return r
}

func (s *Service) shopRoutes(r chi.Router) {
	r.Get("/", s.getShop)
	r.Post("/currency", s.postCurrency)
	r.Get("/cart", s.getCart)
	r.Post("/cart", s.postCart)
	r.Post("/checkout", s.postCheckout)
	r.Get("/pay/{id}", s.getPay)
	r.Post("/pay/{id}", s.postPay)
	r.Get("/orders", s.getOrders)
	r.Get("/orders/{id}", s.getOrder)
	r.Get("/orders/{id}/stream", s.streamOrder)
	r.Get("/search", s.getSearch)
	r.Get("/account", s.getAccount)
	r.Post("/account", s.postShopper)
}

// watchRoutes are for everybody who wants to see how things are, where the
// console is open; else for those who have signed in.
func (s *Service) watchRoutes(r chi.Router) {
	r.Group(func(r chi.Router) {
		r.Use(s.mayWatch)
		r.Get("/live", s.getLive)
		r.Get("/live/stream", s.streamLive)
		r.Get("/why", s.getWhy)
	})
	r.With(s.mayBreak).Post("/live/{what}", s.postBreak)
}

// operatorRoutes show what operators see and do. The services themselves
// decide what the bearer of the visitor's token may do.
func (s *Service) operatorRoutes(r chi.Router) {
	r.Get("/sign-in", s.getSignIn)
	r.Post("/sign-in", s.postSignIn)
	r.Post("/sign-out", s.postSignOut)
	r.Route("/operate", func(r chi.Router) {
		r.Use(s.signedIn)
		r.Get("/", s.getDeadLetters)
		r.Get("/dead-letters/{service}/{id}", s.getDeadLetter)
		r.Post("/dead-letters/{service}/{id}", s.postDeadLetter)
		r.Get("/desk", s.getDesk)
		r.Get("/exceptions/{service}/{id}", s.getException)
		r.Post("/exceptions/{service}/{id}", s.postException)
		r.Post("/doubts/{service}/{id}", s.postDoubt)
		r.Get("/replays", s.getReplays)
		r.Post("/replays", s.postReplay)
		r.Post("/replays/{service}/{id}", s.postMoveReplay)
		r.Get("/reconcile", s.getReconcile)
		r.Post("/reconcile", s.postReconcile)
		r.Get("/actions", s.getActions)
	})
}

// postLanguage changes the language of the pages.
func (s *Service) postLanguage(w http.ResponseWriter, r *http.Request) {
	for _, language := range languages {
		if language == r.PostFormValue("lang") {
			setCookie(w, r, languageCookie, language, 12*month)
		}
	}
	http.Redirect(w, r, localPath(r.PostFormValue("to")), http.StatusSeeOther)
}

// mayWatch lets those in who have signed in, and everybody where the console
// is public.
func (s *Service) mayWatch(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, token := actorOf(r); token == "" && !s.public {
			s.showSignIn(w, r, http.StatusUnauthorized, "")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// signedIn lets those in who carry a token.
func (s *Service) signedIn(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, token := actorOf(r); token == "" {
			s.showSignIn(w, r, http.StatusUnauthorized, "")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// mayBreak keeps the buttons that break things to where somebody has set up
// what they call.
func (s *Service) mayBreak(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.control.base == "" {
			s.notFound(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}
