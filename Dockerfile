# One image with every program of the shop: services share their layers, and a
# deployment moves all of them to one commit. No shell, no package, no root.
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -buildvcs=false -trimpath -ldflags='-s -w' -o /out/bin/ ./cmd/... \
 && mkdir -p /out/data

FROM gcr.io/distroless/static:nonroot
COPY --from=build /out/bin/ /
# Volumes take their owner from the folder that they cover.
COPY --from=build --chown=65532:65532 /out/data /data
USER 65532:65532
